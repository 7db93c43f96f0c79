"""All measured runs with their blanks (and the share of recomputed blocks) filled, as the fit uses them."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.fit.data import NEVER, Run, files, rows_of, run_of
from solver.validate import Constants, Row
from solver.validate.layouts import BLOCKS
from solver.validate.predict import Predicted, predict

STATED = {"narayanan_sc21": {"vpp": 1}}
"""cells that a file leaves open and its runs are compared at (interleaving came with that paper's later tables)"""
DEVICES = ("A100", "V100", "H100", "H200")
"""kinds of device with enough runs; the rates of the others come from microbenchmarks alone"""
COMPLETED = ("nvidia_nemo_2024", "megatron_bridge_moe")
"""files whose rows all have open cells; of the others only rows with a stated layout are fitted"""
RELEASES = {"megatron_bridge_moe": ("release 26.06;", "release 26.08;")}
"""releases of a page that are compared: equal layouts drift between them, and 26.06.01 has a known regression"""


def all_runs(constants: Constants | None = None) -> list[Run]:
    """Runs of every file that is fitted; rows with open cells, and shares of recomputed blocks, as validation has them."""
    found: list[Run] = []
    for file in files():
        if file in NEVER:
            continue
        rows = [row for row in rows_of(file) if _compared(file, row)]
        stated = [replace(row, **STATED.get(file, {})) for row in rows]
        filled: dict[str, Row] = {}
        if any(_open(row) or row.recompute == BLOCKS for row in stated):
            for row, prediction in zip(stated, predict(stated, constants or Constants()), strict=True):
                if isinstance(prediction, Predicted):
                    filled[str(row.row_id)] = prediction.row
        for row in stated:
            run = run_of(file, row, filled.get(str(row.row_id)))
            if run is not None:
                found.append(run)
    return found


def _compared(file: str, row: Row) -> bool:
    """Whether a row takes part: its device, its release where the page has several, and whether its layout is stated."""
    if row.gpu is None or not any(word in row.gpu for word in DEVICES):
        return False
    if file in RELEASES and not any(release in (row.notes or "") for release in RELEASES[file]):
        return False
    return file in COMPLETED or not _open(replace(row, **STATED.get(file, {})))


def _open(row: Row) -> bool:
    return any(getattr(row, name) is None for name in ("mbs", "vpp", "recompute", "zero_stage", "gbs"))
