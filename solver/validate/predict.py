"""Predictions of rows: every row gets one, or the reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.problem import Problem
from solver.validate.cases import Case, case_of
from solver.validate.complete import blanks, completions, shares_of_blocks, worth_counting
from solver.validate.constants import SHIPPED, Constants
from solver.validate.harness import Harness
from solver.validate.layouts import BLOCKS
from solver.validate.memory import Memory, memory_of
from solver.validate.refusal import Refused
from solver.validate.rows import Row


@dataclass(frozen=True, slots=True)
class Predicted:
    """`row` has its blanks filled; interval_s is the model's central 90 %, which holds the legal values tied with the chosen."""

    row: Row
    completed: bool
    step_s: float
    interval_s: tuple[float, float]
    memory: Memory
    notes: tuple[str, ...]


def predict(rows: Sequence[Row], constants: Constants = SHIPPED) -> list[Predicted | str]:
    """One prediction, or the reason of its refusal, per row and in order."""
    cases: list[Case] = []
    owner: list[tuple[int, int]] = []
    reasons: list[str] = []
    parsed: dict[str, Problem] = {}
    for row in rows:
        first = len(cases)
        reasons.append(_add(row, cases, parsed))
        owner.append((first, len(cases)))
    harness = Harness(cases)
    seconds = np.full(len(cases), np.nan)
    memory: dict[int, Memory] = {}
    for index, assembled in harness.assemble(constants):
        seconds[index] = float(assembled.step_seconds()[0])
        memory[index] = memory_of(assembled)
    found: list[Predicted | str] = []
    for row, (first, after), reason in zip(rows, owner, reasons, strict=True):
        if first == after:
            found.append(reason)
        elif after - first == 1 and not blanks(row):
            found.append(_stated(cases[first], float(seconds[first]), memory[first]))
        else:
            chosen = _fastest(cases[first:after], seconds[first:after], [memory[index] for index in range(first, after)])
            found.append(replace(chosen, completed=bool(blanks(row))))
    return found


def _add(row: Row, cases: list[Case], parsed: dict[str, Problem]) -> str:
    """Append the cases of a row; the reason of the (first) refusal where it has none."""
    if row.fault is not None:
        return row.fault
    reason = ""
    options = completions(row) if blanks(row) else (shares_of_blocks(row) if row.recompute == BLOCKS else iter((row,)))
    before = len(cases)
    for option in options:
        try:
            cases.append(case_of(option, parsed))
        except Refused as error:
            reason = reason or str(error)
    if len(cases) > before:
        return ""
    return reason or f"layout not stated: {', '.join(name for name in ('tp', 'pp', 'layers') if getattr(row, name) is None)}"


def _stated(case: Case, seconds: float, memory: Memory) -> Predicted:
    error = case.problem.workload.software.assumptions["time_error_fraction"]
    interval = (seconds * (1.0 - error), seconds * (1.0 + error))
    return Predicted(case.row, False, seconds, interval, memory, case.notes)


def _fastest(cases: list[Case], seconds: np.ndarray, memory: list[Memory]) -> Predicted:
    """The fastest per token of the completions that count.

    Its interval is that of the model around it: it holds every legal value that the model cannot tell from the fastest. Slower
    ones are legal too, but nobody publishes them.
    """
    counts = worth_counting([case.row for case in cases], [entry.fits for entry in memory])
    per_row = np.array([value / (case.row.gbs or 1) for case, value in zip(cases, seconds, strict=True)])
    chosen = [index for index, counted in enumerate(counts) if counted]
    best = min(chosen, key=lambda index: (per_row[index], index))
    return _stated(cases[best], float(seconds[best]), memory[best])
