"""The report of `planner validate`: a summary per file, and every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solver.validate.constants import SHIPPED, Constants
from solver.validate.measured import measured_step
from solver.validate.memory import as_read, measured_bytes
from solver.validate.predict import Predicted, predict
from solver.validate.rows import Row, parse_rows
from solver.validate.summary import summary


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a reader wants beside a prediction; None where the row does not say. Memory in the terms of the reading."""

    measured_step_s: float | None
    time_error_fraction: float | None
    measured_memory_bytes: float | None
    predicted_memory_bytes: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """`files` and `rows` as DESIGN 3.6 has them; `comparisons` in the order of the rows."""

    files: tuple[dict[str, Any], ...]
    rows: tuple[dict[str, Any], ...]
    comparisons: tuple[Comparison, ...]

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"files": list(self.files), "rows": list(self.rows)}


def validate(
    files: Sequence[tuple[str, str]],
    overrides: Mapping[str, str] | None = None,
    constants: Constants = SHIPPED,
    on_progress: Callable[[str, int], None] | None = None,
) -> Report:
    """The report of (name, CSV text) pairs, all rows in one list and in order; `on_progress(name, rows)` before each file.

    Raises InvalidProblem for columns that are missing or unknown.
    """
    read = [(name, parse_rows(text, overrides)) for name, text in files]
    summaries, documents, comparisons = [], [], []
    for name, rows in read:
        if on_progress is not None:
            on_progress(name, len(rows))
        predictions = predict(rows, constants)
        summaries.append(summary(name, rows, predictions))
        for row, prediction in zip(rows, predictions, strict=True):
            documents.append(row_document(row, prediction))
            comparisons.append(comparison(row, prediction))
    return Report(files=tuple(summaries), rows=tuple(documents), comparisons=tuple(comparisons))


def row_document(row: Row, prediction: Predicted | str) -> dict[str, Any]:
    """One row of the report; null where not applicable."""
    if isinstance(prediction, str):
        return {
            "row_id": row.row_id,
            "predicted_step_time_s": None,
            "predicted_interval_s": None,
            "predicted_peak_memory_bytes": None,
            "fits": None,
            "safe": None,
            "completed": None,
            "measured_kind": measured_step(row).kind,
            "skipped_reason": prediction,
        }
    return {
        "row_id": row.row_id,
        "predicted_step_time_s": prediction.step_s,
        "predicted_interval_s": list(prediction.interval_s),
        "predicted_peak_memory_bytes": prediction.memory.peak_bytes,
        "fits": prediction.memory.fits,
        "safe": prediction.memory.safe,
        "completed": prediction.completed,
        "measured_kind": measured_step(_timed(row, prediction)).kind,
        "skipped_reason": None,
    }


def comparison(row: Row, prediction: Predicted | str) -> Comparison:
    """Measured beside predicted."""
    doubts = () if row.doubt is None else (row.doubt,)
    if isinstance(prediction, str):
        return Comparison(measured_step(row).step_s, None, measured_bytes(row), None, doubts)
    measured = measured_step(_timed(row, prediction)).step_s
    reading = measured_bytes(row)
    return Comparison(
        measured_step_s=measured,
        time_error_fraction=None if measured is None else prediction.step_s / measured - 1.0,
        measured_memory_bytes=reading,
        predicted_memory_bytes=None if reading is None else as_read(row, prediction.memory),
        notes=(*prediction.notes, *doubts),
    )


def _timed(row: Row, prediction: Predicted) -> Row:
    """The row by whose batch rates become seconds."""
    return row if row.gbs is not None else prediction.row
