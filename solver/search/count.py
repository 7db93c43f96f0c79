"""How large a space is at least, without laying it out: for a service that must refuse what is too large before any work.

Counted are the skeletons of uniform layouts on one group and of pipelines over two groups, by formulas over arrays; cells along
the ranks of two groups and unlike replicas come on top. Legality in a framework takes some away, as it does in the search,
whose own limit is on the same raw number.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import gcd

import numpy as np

from solver.cost.table import CostModel
from solver.evaluate import Evaluator
from solver.frameworks import get_rule_set
from solver.problem import Problem
from solver.search.degrees import degree_table
from solver.search.grid import EVEN, Grid, micro_batch_demands, option_grid, pipeline_shapes
from solver.search.space import group_pairs
from solver.search.uniform import pipeline_depths


def skeletons_at_least(problem: Problem, enough: int) -> int:
    """Skeletons of a normalised problem, a lower bound; counting ends soon after `enough`."""
    model = Evaluator(problem).model
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    grid = option_grid(model, rules)
    total = 0
    for group in range(len(model.networks)):
        total += uniform_count(model, grid, group, enough - total)
        if total > enough:
            return total
    for first, second in group_pairs(model, rules) if rules.capabilities.uneven_layers else []:
        same = not rules.capabilities.per_stage_degrees
        total += stage_count(model, grid, first, second, same_degrees=same)
        if total > enough:
            return total
    return total


def uniform_count(model: CostModel, grid: Grid, group: int, enough: int) -> int:
    """Cells that `uniform_cells` makes for a group."""
    devices = model.networks[group].devices
    degrees = degree_table(grid, devices)
    if not len(degrees.dp):
        return 0
    replica = np.array([tp * cp for tp in grid.tp for cp in grid.cp])
    kinds = np.array([len(grid.cp_kind) if cp > 1 else 1 for tp in grid.tp for cp in grid.cp])
    experts = Counter(ep * etp for ep in grid.ep for etp in grid.etp)
    total = 0
    for stages in pipeline_depths(model, grid, devices):
        splits = sum(split == EVEN or stages > 1 for split in grid.splits)
        shapes = pipeline_shapes(model.architecture.layers, stages, grid)
        demands = Counter(micro_batch_demands(schedule, stages, grid) for schedule, _ in shapes)
        weight = np.zeros(len(degrees.dp), dtype=np.int64)
        for (unit, least), times in demands.items():
            weight += splits * times * ((degrees.micro_batches % unit == 0) & (degrees.micro_batches >= least))
        end = np.searchsorted(degrees.dp, devices // (replica * stages), side="right")
        total += _with_experts(weight, degrees.dp, end, replica, kinds, experts)
        if total > enough:
            break
    return total


def _with_experts(
    weight: np.ndarray, dp: np.ndarray, end: np.ndarray, replica: np.ndarray, kinds: np.ndarray, experts: Counter[int]
) -> int:
    """Sum of `weight[: end]` over every replica size, where replica x dp holds whole expert groups."""
    total = 0
    for ranks, times in experts.items():
        unit = np.array([ranks // gcd(ranks, int(size)) for size in replica])
        for divisor in np.unique(unit):
            sums = np.concatenate([[0], np.cumsum(weight * (dp % divisor == 0))])
            mine = unit == divisor
            total += times * int((sums[end[mine]] * kinds[mine]).sum())
    return total


def stage_count(model: CostModel, grid: Grid, first: int, second: int, *, same_degrees: bool) -> int:
    """Cells that `stage_cells` makes for two groups."""
    devices = [model.networks[group].devices for group in (first, second)]
    layers = model.architecture.layers

    @cache
    def pairs(one: int, two: int, degrees: tuple[int, ...]) -> int:
        return _depth_pairs((one, two), degrees, layers, grid.pp_allowed, same_degrees)

    table = degree_table(grid, min(devices))
    batches = Counter(table.dp.tolist())
    total = 0
    for cp in grid.cp:
        kinds = len(grid.cp_kind) if cp > 1 else 1
        for dp, times in batches.items():
            if cp * dp > min(devices):
                continue
            room = [count // (cp * dp) for count in devices]
            for ranks in (ep * etp for ep in grid.ep for etp in grid.etp):
                degrees = tuple(tp for tp in grid.tp if (tp * cp * dp) % ranks == 0)
                total += kinds * times * pairs(room[0], room[1], degrees)
    return total * len(grid.one_chunk_schedules(2))


def _depth_pairs(
    room: tuple[int, int], degrees: tuple[int, ...], layers: int, pp_allowed: tuple[int, ...] | None, same_degrees: bool
) -> int:
    """Choices of (tp, stages) on both sides, each within its room, with at most `layers` stages together."""
    depth = np.arange(layers + 1)
    fits = [np.array([(depth >= 1) & (depth * tp <= side) for tp in degrees], dtype=np.int64) for side in room]
    if not degrees:
        return 0
    if same_degrees:
        ways = np.sum([np.convolve(one, two) for one, two in zip(*fits, strict=True)], axis=0)
    else:
        ways = np.convolve(fits[0].sum(axis=0), fits[1].sum(axis=0))
    together = np.arange(2 * layers + 1)
    allowed = together <= layers
    if pp_allowed is not None:
        allowed &= np.isin(together, pp_allowed)
    return int(ways[allowed].sum())
