"""Uniform cells: one mesh for all stages, on one group or along the ranks of two groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from solver.cost.table import CostModel
from solver.search.cells import UNIFORM, Cells, make_cells
from solver.search.degrees import Degrees, degree_table
from solver.search.grid import EVEN, Grid, micro_batch_demands, pipeline_shapes


def uniform_cells(model: CostModel, grid: Grid, group: int) -> Iterator[Cells]:
    """Classical layouts on one group; devices that a layout does not need stay idle."""
    devices = model.networks[group].devices
    return _cells(model, grid, (group, group), devices, devices)


def uniform_pair_cells(model: CostModel, grid: Grid, first: int, second: int) -> Iterator[Cells]:
    """Classical layouts over the ranks of `first` then `second` that reach into the second group."""
    boundary = model.networks[first].devices
    return _cells(model, grid, (first, second), boundary + model.networks[second].devices, boundary)


def _cells(model: CostModel, grid: Grid, groups: tuple[int, int], devices: int, boundary: int) -> Iterator[Cells]:
    degrees = degree_table(grid, devices)
    for tp in grid.tp:
        for cp in grid.cp:
            if tp * cp > devices:
                continue
            for stages in pipeline_depths(model, grid, devices // (tp * cp)):
                base = _shaped(model, grid, degrees.up_to(devices // (tp * cp * stages)), stages)
                if base is None:
                    continue
                yield from _with_experts(model, grid, groups, boundary, tp, cp, stages, base)


def pipeline_depths(model: CostModel, grid: Grid, most: int) -> list[int]:
    """Pipeline depths up to the layers and the devices."""
    most = min(most, model.architecture.layers)
    if grid.pp_allowed is None:
        return list(range(1, most + 1))
    return [stages for stages in grid.pp_allowed if stages <= most]


def _shaped(model: CostModel, grid: Grid, degrees: Degrees, stages: int) -> dict[str, np.ndarray] | None:
    """(dp, mbs, micro-batches, rows, schedule, vpp, split) combinations of one pipeline depth."""
    if not len(degrees.dp):
        return None
    shapes = [
        (schedule, vpp, split, *micro_batch_demands(schedule, stages, grid))
        for schedule, vpp in pipeline_shapes(model.architecture.layers, stages, grid)
        for split in grid.splits
        if split == EVEN or stages > 1
    ]
    shaped = np.array(shapes, dtype=np.int64).reshape(-1, 5)
    left = np.repeat(np.arange(len(degrees.dp)), len(shaped))
    right = np.tile(np.arange(len(shaped)), len(degrees.dp))
    micro = degrees.micro_batches[left]
    keep = (micro % shaped[right, 3] == 0) & (micro >= shaped[right, 4])
    left, right = left[keep], right[keep]
    return {
        "dp": degrees.dp[left],
        "mbs": degrees.mbs[left],
        "micro": degrees.micro_batches[left],
        "rows": degrees.rows[left],
        "schedule": shaped[right, 0],
        "vpp": shaped[right, 1],
        "split": shaped[right, 2],
    }


def _with_experts(
    model: CostModel,
    grid: Grid,
    groups: tuple[int, int],
    boundary: int,
    tp: int,
    cp: int,
    stages: int,
    base: dict[str, np.ndarray],
) -> Iterator[Cells]:
    replica = tp * cp
    across = groups[0] != groups[1]
    if across and boundary % replica:
        return
    kept: list[np.ndarray] = []
    choices: list[tuple[int, int, int]] = []
    for ep, etp in product(grid.ep, grid.etp):
        keep = (replica * base["dp"]) % (ep * etp) == 0
        if across:
            keep &= _reaches(base["dp"], boundary // replica, stages, replica, ep * etp, model.collectives_cross(*groups))
        if keep.any():
            kinds = grid.cp_kind if cp > 1 else (0,)
            kept += [np.flatnonzero(keep)] * len(kinds)
            choices += [(ep, etp, kind) for kind in kinds]
    if not kept:
        return
    rows = np.concatenate(kept)
    experts, expert_tensor, cp_kind = np.repeat(np.array(choices, dtype=np.int64), [len(part) for part in kept], axis=0).T
    chosen = {name: values[rows] for name, values in base.items()}
    yield _uniform(groups, boundary // replica, tp, cp, cp_kind, experts, expert_tensor, stages, chosen, across)


def _reaches(dp: np.ndarray, first_replicas: int, stages: int, replica: int, expert_ranks: int, collectives: bool) -> np.ndarray:
    """Layouts that use both groups; a stage with replicas on both needs collectives between them and whole expert groups."""
    full, extra = first_replicas // dp, first_replicas % dp
    mixed = (extra > 0) & (full < stages)
    keep = (full < stages) & ((full > 0) | (extra > 0))
    whole = ((replica * extra) % expert_ranks == 0) & ((replica * (dp - extra)) % expert_ranks == 0)
    result: np.ndarray = keep & (~mixed | (whole & collectives))
    return result


def _uniform(
    groups: tuple[int, int],
    first_replicas: int,
    tp: int,
    cp: int,
    cp_kind: np.ndarray,
    ep: np.ndarray,
    etp: np.ndarray,
    stages: int,
    base: dict[str, np.ndarray],
    across: bool,
) -> Cells:
    size = len(base["dp"])
    dp = np.stack([base["dp"], np.zeros(size, dtype=np.int64)], axis=1)
    first_count = np.full((size, 2), stages, dtype=np.int64)
    chains = np.ones(size, dtype=np.int64)
    if across:
        full, extra = first_replicas // base["dp"], first_replicas % base["dp"]
        mixed = (extra > 0) & (full < stages)
        dp[:, 0] = np.where(mixed, extra, base["dp"])
        dp[:, 1] = np.where(mixed, base["dp"] - extra, 0)
        first_count[:, 0] = np.where(mixed, full + 1, full)
        first_count[:, 1] = full
        chains = np.where(mixed, 2, 1)
    return make_cells(
        size,
        family=UNIFORM,
        level=1,
        group=np.tile(np.array(groups), (size, 1)),
        stages=stages,
        schedule=base["schedule"],
        vpp=base["vpp"],
        mbs=base["mbs"],
        split=base["split"],
        tp=tp,
        cp=cp,
        cp_kind=cp_kind,
        ep=ep,
        etp=etp,
        chains=chains,
        dp=dp,
        micro=np.stack([base["micro"], base["micro"]], axis=1),
        first_count=first_count,
        layers_first=-1,
        rows=base["rows"],
        leaves=1,
    )
