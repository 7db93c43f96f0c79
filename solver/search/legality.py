"""Cells and their state variants asked of the framework's rules, as columns."""

from __future__ import annotations

import numpy as np

from solver.cost.table import CostModel
from solver.frameworks import RuleSet
from solver.search.cells import Cells
from solver.search.grid import EVEN, Grid, StateVariant


def legal_cells(rules: RuleSet, model: CostModel, grid: Grid, cells: Cells) -> np.ndarray:
    """bool[cells]: legal with at least one state variant, with or without offload."""
    keep = np.zeros(len(cells), dtype=bool)
    for zero in sorted({state.zero for state in grid.states}):
        for percent in {grid.offload_percent[0], grid.offload_percent[-1]}:
            left = np.flatnonzero(~keep)
            if len(left):
                keep[left] = legal_variants(
                    rules, model, grid, cells.take(left), StateVariant(zero, False), np.ones((len(left), 2)), percent
                )
    return keep


def legal_variants(
    rules: RuleSet, model: CostModel, grid: Grid, cells: Cells, state: StateVariant, copies: np.ndarray, offload_percent: int
) -> np.ndarray:
    """bool[cells]: every rule holds on every slot and chain of one state variant; `copies[cells, slots]` of optimizer shards."""
    keep = np.ones(len(cells), dtype=bool)
    layers = model.architecture.layers
    for slot in range(2):
        second = (slot == 0) | (cells.group[:, 0] != cells.group[:, 1])
        for chain in range(2):
            active = (chain < cells.chains) & second
            if not active.any():
                continue
            chosen = cells if active.all() else cells.take(active)
            open_micro = chosen.micro[:, chain] <= 0
            columns = {
                "tp": chosen.tp[:, slot],
                "cp": chosen.cp[:, slot],
                "dp": chosen.total_dp,
                "pp": chosen.stages,
                "ep": chosen.ep[:, slot],
                "etp": chosen.etp[:, slot],
                "vpp": chosen.vpp,
                "schedule": chosen.schedule,
                "mbs": chosen.mbs,
                # open shares are counted with what the schedule needs; a multiple of four stages suits all
                "micro_batches": np.where(open_micro, 4 * chosen.stages, chosen.micro[:, chain]),
                "zero": np.full(len(chosen), state.zero),
                "sequence_parallel": ((chosen.tp[:, slot] > 1) & grid.sequence_parallel[0]).astype(np.int64),
                "cp_kind": chosen.cp_kind,
                "offload_optimizer_percent": np.full(len(chosen), offload_percent),
                "optimizer_replicas": copies[active, slot].astype(np.int64),
                "explicit_split": _written_out(rules, chosen, layers),
                "devices": chosen.devices.sum(axis=1),
                "step_rows": chosen.rows,
            }
            keep[active] &= rules.legal(model.problem, columns)
    return keep


def _written_out(rules: RuleSet, cells: Cells, layers: int) -> np.ndarray:
    """int64[cells]: the layers of every stage are given to the framework; one that takes no such list divides them itself."""
    if rules.capabilities.uneven_layers != "any":
        return np.zeros(len(cells), dtype=np.int64)
    uneven: np.ndarray = (cells.split != EVEN) | (layers % (cells.stages * cells.chunks) > 0)
    return uneven.astype(np.int64)
