"""The measured runs that constants are fitted on: every usable row of the files, and fixed samples of the two largest.

`benchmarks/fit_rows.txt` lists them; `sample()` says how that list was drawn (PCG64, seed 0).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solver.validate import Case, Refused, Row, case_of, measured_step, parse_rows

SHARED = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).resolve().parents[3] / "shared"))
MEASUREMENTS = SHARED / "data" / "measurements"
FIT_ROWS = Path(__file__).resolve().parents[1] / "fit_rows.txt"
SAMPLED = {"vtrain_single_node": 150, "vtrain_multi_node": 25}
NEVER = ("megatron_core_h100", "primus_amd")
"""files whose rows leave the layout open (DESIGN 3.6): scored as completed rows, not fitted"""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run with its case."""

    file: str
    case: Case
    measured_s: float

    @property
    def row_id(self) -> str:
        """The row's id."""
        return str(self.case.row.row_id)


def rows_of(file: str) -> tuple[Row, ...]:
    """Rows of a measurement file."""
    return tuple(parse_rows((MEASUREMENTS / f"{file}.csv").read_text(encoding="utf-8")))


def files() -> tuple[str, ...]:
    """Names of the measurement files."""
    return tuple(sorted(path.stem for path in MEASUREMENTS.glob("*.csv")))


def run_of(file: str, row: Row, filled: Row | None = None) -> Run | None:
    """The run of a row (with its blanks filled, if given); None when it cannot be predicted or compared."""
    measured = measured_step(row)
    if measured.step_s is None:
        return None
    try:
        return Run(file, case_of(filled or row), measured.step_s)
    except Refused:
        return None


def sample(runs: list[Run]) -> list[str]:
    """Row ids to fit on: all, and of the sampled files a fixed draw."""
    chosen: list[str] = []
    for file in files():
        if file in NEVER:
            continue
        ids = [run.row_id for run in runs if run.file == file]
        count = SAMPLED.get(file)
        if count is not None:
            picked = np.random.Generator(np.random.PCG64(0)).permutation(len(ids))[:count]
            ids = [ids[index] for index in sorted(picked)]
        chosen += ids
    return chosen


def listed() -> frozenset[str]:
    """The ids of `fit_rows.txt`."""
    lines = FIT_ROWS.read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def write_listed(runs: list[Run]) -> None:
    """Write `fit_rows.txt` anew."""
    head = "# Rows of the shared measurements that constants are fitted on (drawn by benchmarks/fit/data.py, PCG64 seed 0).\n"
    FIT_ROWS.write_text(head + "\n".join(sample(runs)) + "\n", encoding="utf-8")
