"""Cells over two unlike groups: replicas with unequal shares, and pipelines whose stages sit on one group each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from solver.cost.table import CostModel
from solver.search.cells import REPLICAS, STAGES, Cells, make_cells
from solver.search.degrees import count_shares, degree_table, nearest_rows, side_degrees
from solver.search.grid import BALANCED, EVEN, Grid, micro_batch_demands, pipeline_shapes
from solver.search.uniform import pipeline_depths


def replica_cells(model: CostModel, grid: Grid, first: int, second: int) -> Iterator[Cells]:
    """Equal meshes on both groups, any number of replicas on each, shares open. Gradients are reduced across the link."""
    if not model.collectives_cross(first, second):
        return
    devices = (model.networks[first].devices, model.networks[second].devices)
    for tp in grid.tp:
        for cp in grid.cp:
            for stages in pipeline_depths(model, grid, min(devices) // (tp * cp)):
                room = tuple(count // (tp * cp * stages) for count in devices)
                yield from _replicas(model, grid, (first, second), tp, cp, stages, room)


def _replicas(
    model: CostModel, grid: Grid, groups: tuple[int, int], tp: int, cp: int, stages: int, room: tuple[int, ...]
) -> Iterator[Cells]:
    sides = [side_degrees(most) for most in room]
    one, two = np.repeat(sides[0], len(sides[1])), np.tile(sides[1], len(sides[0]))
    if grid.dp_allowed is not None:
        keep = np.isin(one + two, grid.dp_allowed)
        one, two = one[keep], two[keep]
    kinds = pipeline_shapes(model.architecture.layers, stages, grid)
    shapes = [(schedule, vpp, split) for schedule, vpp in kinds for split in grid.splits if split == EVEN or stages > 1]
    schedule, vpp, split = np.repeat(np.array(shapes, dtype=np.int64).reshape(-1, 3), len(one), axis=0).T
    pairs = list(zip(one.tolist(), two.tolist(), strict=True))
    one, two = np.tile(one, len(shapes)), np.tile(two, len(shapes))
    rows = int(nearest_rows(grid, np.ones(1, dtype=np.int64))[0])
    for mbs in grid.mbs:
        if rows == 0 or rows % mbs or not len(one):
            continue
        demands = [micro_batch_demands(kind, stages, grid) for kind, _, _ in shapes]
        counts = {demand: [count_shares(a, b, rows // mbs, *demand) for a, b in pairs] for demand in set(demands)}
        leaves = np.array([counts[demand] for demand in demands]).ravel()
        for ep, etp in product(grid.ep, grid.etp):
            whole = (tp * cp * one) % (ep * etp) == 0
            whole &= ((tp * cp * two) % (ep * etp) == 0) & (leaves > 0)
            size = int(whole.sum())
            for cp_kind in (grid.cp_kind if cp > 1 else (0,)) if size else ():
                yield make_cells(
                    size,
                    family=REPLICAS,
                    level=0,
                    group=np.tile(np.array(groups), (size, 1)),
                    stages=stages,
                    schedule=schedule[whole],
                    vpp=vpp[whole],
                    mbs=mbs,
                    split=split[whole],
                    tp=tp,
                    cp=cp,
                    cp_kind=cp_kind,
                    ep=ep,
                    etp=etp,
                    chains=2,
                    dp=np.stack([one[whole], two[whole]], axis=1),
                    micro=np.zeros((size, 2), dtype=np.int64),
                    first_count=np.tile(np.array([stages, 0]), (size, 1)),
                    layers_first=-1,
                    rows=rows,
                    leaves=leaves[whole],
                )


def split_shares(cells: Cells, grid: Grid) -> tuple[Cells, np.ndarray]:
    """Children of open `replicas` cells, one per share, and the parent of each."""
    parents, micro = [], []
    for index in range(len(cells)):
        one, two = cells.dp[index]
        total = int(cells.rows[index] // cells.mbs[index])
        unit, least = micro_batch_demands(int(cells.schedule[index]), int(cells.stages[index]), grid)
        first = np.arange(-(-least // unit) * unit, total // one + 1, unit)
        rest = total - one * first
        good = (rest >= two * least) & (rest % (two * unit) == 0)
        shares = np.stack([first[good], rest[good] // two], axis=1)
        micro.append(shares)
        parents.append(np.full(len(shares), index))
    parent = np.concatenate(parents)
    children = cells.take(parent).replaced(
        level=np.ones(len(parent), dtype=np.int64), micro=np.concatenate(micro), leaves=np.ones(len(parent), dtype=np.int64)
    )
    return children, parent


def stage_cells(model: CostModel, grid: Grid, first: int, second: int, *, same_degrees: bool) -> Iterator[Cells]:
    """First stages on `first`, the rest on `second`, equal replicas, own tp on each unless `same_degrees`; layer split open."""
    least = min(model.networks[group].devices for group in (first, second))
    degrees = degree_table(grid, least)
    for cp in grid.cp:
        chosen = degrees.up_to(least // cp)
        for dp, mbs, rows in zip(chosen.dp.tolist(), chosen.mbs.tolist(), chosen.rows.tolist(), strict=True):
            yield from _stages(model, grid, (first, second), cp, mbs, dp, rows, same_degrees)


def _stages(
    model: CostModel, grid: Grid, groups: tuple[int, int], cp: int, mbs: int, dp: int, rows: int, same_degrees: bool
) -> Iterator[Cells]:
    layers = model.architecture.layers
    sides = [_side(grid, model.networks[group].devices // (cp * dp), layers) for group in groups]
    if any(len(side) == 0 for side in sides):
        return
    left = np.repeat(np.arange(len(sides[0])), len(sides[1]))
    right = np.tile(np.arange(len(sides[1])), len(sides[0]))
    tp = np.stack([sides[0][left, 0], sides[1][right, 0]], axis=1)
    depth = np.stack([sides[0][left, 1], sides[1][right, 1]], axis=1)
    keep = depth.sum(axis=1) <= layers
    if same_degrees:
        keep &= tp[:, 0] == tp[:, 1]
    if grid.pp_allowed is not None:
        keep &= np.isin(depth.sum(axis=1), grid.pp_allowed)
    kinds = grid.one_chunk_schedules(2)
    schedule = np.repeat(np.array(kinds, dtype=np.int64), len(tp))
    tp, depth, keep = np.tile(tp, (len(kinds), 1)), np.tile(depth, (len(kinds), 1)), np.tile(keep, len(kinds))
    for ep, etp in product(grid.ep, grid.etp):
        chosen = keep & ((tp * cp * dp) % (ep * etp) == 0).all(axis=1)
        if not chosen.any():
            continue
        size = int(chosen.sum())
        total = depth[chosen].sum(axis=1)
        for cp_kind in grid.cp_kind if cp > 1 else (0,):
            yield make_cells(
                size,
                family=STAGES,
                level=0,
                group=np.tile(np.array(groups), (size, 1)),
                stages=total,
                schedule=schedule[chosen],
                vpp=1,
                mbs=mbs,
                split=BALANCED,
                tp=tp[chosen],
                cp=cp,
                cp_kind=cp_kind,
                ep=ep,
                etp=etp,
                chains=1,
                dp=np.tile(np.array([dp, 0]), (size, 1)),
                micro=np.full((size, 2), rows // (dp * mbs)),
                first_count=np.stack([depth[chosen, 0], depth[chosen, 0]], axis=1),
                layers_first=-1,
                rows=rows,
                leaves=layers - total + 1,
            )


def _side(grid: Grid, most: int, layers: int) -> np.ndarray:
    """(tp, stages) that fit `most` devices of one replica."""
    pairs = [(tp, stages) for tp in grid.tp for stages in range(1, min(most // tp, layers) + 1)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def split_layers(cells: Cells, layers: int) -> tuple[Cells, np.ndarray]:
    """Children of open `stages` cells, one per number of layers on the first group, and the parent of each."""
    first = cells.first_count[:, 0]
    second = cells.stages - first
    counts = layers - first - second + 1
    parent = np.repeat(np.arange(len(cells)), counts)
    offset = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
    children = cells.take(parent).replaced(
        level=np.ones(len(parent), dtype=np.int64),
        layers_first=first[parent] + offset,
        leaves=np.ones(len(parent), dtype=np.int64),
    )
    return children, parent
