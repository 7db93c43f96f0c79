"""What a file of runs says about the predictions: errors, order, memory, and the verdict on what fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from solver.validate.measured import measured_step
from solver.validate.memory import as_read, measured_bytes, reading_kind
from solver.validate.predict import Predicted
from solver.validate.ranking import rank
from solver.validate.rows import Row, count_by


@dataclass(frozen=True, slots=True)
class Errors:
    """Of |predicted / measured - 1|, as fractions; signed_median of predicted / measured - 1; inside = share of the measurements
    within the predicted interval."""

    rows: int
    median: float
    mean: float
    p90: float
    max: float
    signed_median: float
    inside_interval: float | None = None


def errors_of(ratios: Sequence[float], inside: Sequence[bool] | None = None) -> Errors | None:
    """Errors of predicted / measured ratios; None for none."""
    if not ratios:
        return None
    signed = np.asarray(ratios, dtype=np.float64) - 1.0
    size = np.abs(signed)
    return Errors(
        rows=len(ratios),
        median=float(np.median(size)),
        mean=float(size.mean()),
        p90=float(np.quantile(size, 0.9)),
        max=float(size.max()),
        signed_median=float(np.median(signed)),
        inside_interval=float(np.mean(inside)) if inside else None,
    )


def summary(name: str, rows: Sequence[Row], predictions: Sequence[Predicted | str]) -> dict[str, Any]:
    """The summary of one file; `rows` as published, `predictions` in their order."""
    pairs = [(row, p) for row, p in zip(rows, predictions, strict=True) if isinstance(p, Predicted)]
    stated = [(row, p) for row, p in pairs if not p.completed]
    completed = [(row, p) for row, p in pairs if p.completed]
    refused = count_by(p for p in predictions if isinstance(p, str))
    return {
        "file": name,
        "rows": {"total": len(rows), "used": len(stated), "completed": len(completed), "refused": len(rows) - len(pairs)},
        "refused_reasons": refused,
        "step_time": _time(stated),
        "step_time_completed": _time(completed),
        "ranking": _ranking(stated),
        "memory": _memory(stated),
        "verdict": _verdict(stated),
    }


def _time(pairs: list[tuple[Row, Predicted]]) -> dict[str, Any] | None:
    ratios, inside = [], []
    for row, predicted in pairs:
        measured = measured_step(_as_predicted(row, predicted)).step_s
        if measured is not None:
            ratios.append(predicted.step_s / measured)
            inside.append(predicted.interval_s[0] <= measured <= predicted.interval_s[1])
    found = errors_of(ratios, inside)
    return None if found is None else asdict(found)


def _as_predicted(row: Row, predicted: Predicted) -> Row:
    """The published row with the batch of the prediction, by which rates become seconds."""
    return predicted.row if row.gbs is None else row


def _ranking(pairs: list[tuple[Row, Predicted]]) -> dict[str, Any] | None:
    timed = [(row, predicted.step_s, measured_step(row).step_s) for row, predicted in pairs]
    kept = [(row, predicted, measured) for row, predicted, measured in timed if measured is not None]
    groups = rank([row for row, _, _ in kept], [p for _, p, _ in kept], [m for _, _, m in kept])
    if not groups:
        return None
    taus = [group.tau_b for group in groups if group.tau_b is not None]
    return {
        "groups": [asdict(group) for group in groups],
        "mean_tau_b": float(np.mean(taus)) if taus else None,
        "mean_regret_fraction": float(np.mean([group.regret_fraction for group in groups])),
        "max_regret_fraction": max(group.regret_fraction for group in groups),
    }


def _memory(pairs: list[tuple[Row, Predicted]]) -> list[dict[str, Any]]:
    """Errors by what was read."""
    ratios: dict[str, list[float]] = {}
    counted: dict[str, str] = {}
    for row, predicted in pairs:
        reading = measured_bytes(row)
        if reading is not None:
            kind = row.mem_kind or "unstated"
            ratios.setdefault(kind, []).append(as_read(row, predicted.memory) / reading)
            counted[kind] = reading_kind(row)
    found = {kind: errors_of(values) for kind, values in ratios.items()}
    return [{"mem_kind": kind, "compared": counted[kind], **asdict(entry)} for kind, entry in found.items() if entry]


def _verdict(pairs: list[tuple[Row, Predicted]]) -> dict[str, Any] | None:
    """The fit verdict against runs that ended well (fit) or out of memory; None when nothing tells."""
    told = [(row.status == "ok", predicted.memory.fits) for row, predicted in pairs if row.status in ("ok", "oom")]
    if not told:
        return None
    right = sum(1 for ran, fits in told if ran and fits)
    said, ran_at_all = sum(fits for _, fits in told), sum(ran for ran, _ in told)
    precision = right / said if said else None
    recall = right / ran_at_all if ran_at_all else None
    both = precision is not None and recall is not None and precision + recall > 0.0
    return {
        "rows": len(told),
        "precision": precision,
        "recall": recall,
        "f1": 2.0 * precision * recall / (precision + recall) if both and precision and recall else None,
        "out_of_memory_rows": len(told) - ran_at_all,
        "out_of_memory_called": sum(1 for ran, fits in told if not ran and not fits),
        "false_alarms": sum(1 for ran, fits in told if ran and not fits),
    }
