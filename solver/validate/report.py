"""The report of `planner validate`: a summary per file, and every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from solver.validate.constants import SHIPPED, Constants
from solver.validate.measured import measured_step
from solver.validate.predict import Predicted, predict
from solver.validate.rows import Row, parse_rows
from solver.validate.summary import summary


def validate(
    files: Sequence[tuple[str, str]], overrides: Mapping[str, str] | None = None, constants: Constants = SHIPPED
) -> dict[str, Any]:
    """`{files: [summary], rows: [...]}` of (name, CSV text) pairs, one list of all rows in order (DESIGN 3.6).

    Raises InvalidProblem for columns that are missing or unknown.
    """
    read = [(name, parse_rows(text, overrides)) for name, text in files]
    predictions = predict([row for _, rows in read for row in rows], constants)
    summaries, found, done = [], [], 0
    for name, rows in read:
        own = predictions[done : done + len(rows)]
        done += len(rows)
        summaries.append(summary(name, rows, own))
        found += [row_document(row, prediction) for row, prediction in zip(rows, own, strict=True)]
    return {"files": summaries, "rows": found}


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
        "measured_kind": measured_step(prediction.row if row.gbs is None else row).kind,
        "skipped_reason": None,
    }
