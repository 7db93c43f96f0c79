"""The stated space: all cells of all families, counted before anything is priced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from solver.cost.table import CostModel
from solver.errors import FieldError, InvalidProblem
from solver.frameworks import RuleSet
from solver.layout import SCHEDULE_KINDS
from solver.search.cells import Cells, no_cells
from solver.search.grid import CP_KINDS, SPLITS, Grid
from solver.search.legality import legal_cells
from solver.search.pairs import replica_cells, stage_cells
from solver.search.tables import TableBuilder
from solver.search.uniform import uniform_cells, uniform_pair_cells

BLOCK = 65_536
"""cells that are laid out, checked and bounded together: whatever the space, a block stays in the processor's cache"""
MOST_CELLS = 40_000_000
OPTION_WORDS = ("none", "core_attn", "selective", "full")


@dataclass(frozen=True, slots=True, eq=False)
class StatedSpace:
    """Legal cells in blocks, and the certificate's words for them."""

    blocks: tuple[Cells, ...]
    leaves: int
    count: int
    dimensions: dict[str, tuple[Any, ...]]

    @property
    def cells(self) -> Cells:
        """All cells in one piece (small spaces)."""
        return Cells.concatenate(list(self.blocks)) if self.blocks else no_cells()


class Stopped(Exception):
    """The caller asked to stop before the space was laid out."""


def stated_space(
    model: CostModel,
    rules: RuleSet,
    grid: Grid,
    builder: TableBuilder,
    layouts_per_leaf: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> StatedSpace:
    """All legal cells under the constraints; InvalidProblem when they are too many, Stopped when told to stop."""
    pairs = group_pairs(model, rules)
    blocks: list[Cells] = []
    seen = _Values()
    size = 0
    for block in _blocks(_all_parts(model, rules, grid, pairs)):
        size += len(block)
        _check_size(size)
        if blocks and should_stop():
            raise Stopped
        kept = block.take(_allowed(model, grid, block))
        kept = kept.take(legal_cells(rules, model, grid, kept))
        kept = kept.take(builder.new_cuts(kept))
        if len(kept):
            blocks.append(kept)
            seen.add(kept)
    leaves = sum(int(block.leaves.sum()) for block in blocks)
    return StatedSpace(
        blocks=tuple(blocks), leaves=leaves, count=leaves * layouts_per_leaf, dimensions=_dimensions(model, grid, seen, pairs)
    )


def _blocks(parts: Iterator[Cells]) -> Iterator[Cells]:
    """Parts joined and cut so that blocks have about BLOCK cells."""
    waiting: list[Cells] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= BLOCK:
            joined = Cells.concatenate(waiting)
            for start in range(0, size, BLOCK):
                yield joined.take(np.arange(start, min(start + BLOCK, size)))
            waiting, size = [], 0
    if waiting:
        yield Cells.concatenate(waiting)


class _Values:
    """Distinct values of the dimensions over all blocks."""

    def __init__(self) -> None:
        self.found: dict[str, set[int]] = {}

    def add(self, cells: Cells) -> None:
        """Note the values that occur in a block."""
        for name in ("family", "tp", "cp", "stages", "schedule", "vpp", "total_dp", "ep", "etp", "mbs"):
            self.found.setdefault(name, set()).update(np.flatnonzero(np.bincount(getattr(cells, name).ravel())).tolist())

    def of(self, name: str) -> tuple[int, ...]:
        """Values seen, rising."""
        return tuple(sorted(self.found.get(name, ())))


def _all_parts(model: CostModel, rules: RuleSet, grid: Grid, pairs: list[tuple[int, int]]) -> Iterator[Cells]:
    for group in range(len(model.networks)):
        yield from uniform_cells(model, grid, group)
    for first, second in pairs:
        yield from uniform_pair_cells(model, grid, first, second)
        if first < second and rules.capabilities.unequal_shares:
            yield from replica_cells(model, grid, first, second)
        if rules.capabilities.uneven_layers == "any":
            yield from stage_cells(model, grid, first, second, same_degrees=not rules.capabilities.per_stage_degrees)


def group_pairs(model: CostModel, rules: RuleSet) -> list[tuple[int, int]]:
    """Ordered pairs of groups that one layout may span."""
    groups = model.problem.cluster.groups
    found = []
    for first, second in permutations(range(len(groups)), 2):
        like = groups[first].device.vendor == groups[second].device.vendor
        if rules.capabilities.unlike_devices == "any" or (rules.capabilities.unlike_devices == "one_vendor" and like):
            found.append((first, second))
    return found


def _check_size(size: int) -> None:
    if size > MOST_CELLS:
        message = f"the space has more than {MOST_CELLS} skeletons; narrow it with constraints.allowed (pp, tp, cp, dp, mbs)"
        raise InvalidProblem((FieldError("/constraints/allowed", "too_large", message, None),))


def _allowed(model: CostModel, grid: Grid, cells: Cells) -> np.ndarray:
    """Caps on devices and on price; sequence parallel everywhere when it is demanded."""
    keep = np.ones(len(cells), dtype=bool)
    if grid.tensor_parallel_only:
        keep &= (cells.tp > 1).all(axis=1)
    constraints = model.problem.constraints
    devices = cells.devices
    if constraints.max_devices is not None:
        keep &= devices.sum(axis=1) <= constraints.max_devices
    if constraints.max_price_per_hour is not None:
        keep &= hourly_price(model, cells) <= constraints.max_price_per_hour
    return keep


def hourly_price(model: CostModel, cells: Cells) -> np.ndarray:
    """Price per hour of the devices in use (infinite where one has none)."""
    price = np.array(
        [np.inf if group.price_per_device_hour is None else group.price_per_device_hour for group in model.problem.cluster.groups]
    )
    used = cells.devices
    total = np.zeros(len(cells))
    for slot in range(2):
        rate = price[cells.group[:, slot]]
        total += np.where(used[:, slot] > 0, used[:, slot] * np.where(np.isfinite(rate), rate, 0.0), 0.0)
        total = np.where((used[:, slot] > 0) & ~np.isfinite(rate), np.inf, total)
    return total


def _dimensions(model: CostModel, grid: Grid, seen: _Values, pairs: list[tuple[int, int]]) -> dict[str, tuple[Any, ...]]:
    """Option grid of every dimension, as it occurs in the cells."""
    names = [group.name for group in model.problem.cluster.groups]
    groups: list[list[str]] = [[name] for name in names] + [[names[a], names[b]] for a, b in pairs]

    families = ("uniform", "unlike_replicas", "unlike_stages")
    return {
        "groups": tuple(groups),
        "structure": tuple(families[index] for index in seen.of("family")),
        "tp": seen.of("tp"),
        "cp": seen.of("cp"),
        "cp_kind": tuple(CP_KINDS[index] for index in grid.cp_kind),
        "pp": seen.of("stages"),
        "schedule": tuple(SCHEDULE_KINDS[code] for code in seen.of("schedule")),
        "vpp": seen.of("vpp"),
        "dp": seen.of("total_dp"),
        "ep": seen.of("ep"),
        "etp": seen.of("etp"),
        "mbs": seen.of("mbs"),
        "layer_split": tuple(SPLITS[index] for index in grid.splits),
        "sequence_parallel": ("tp > 1",) if grid.sequence_parallel[0] else (False,),
        "zero": tuple(sorted({state.zero for state in grid.states})),
        "shard_group": ("all", "node") if any(state.inside_node for state in grid.states) else ("all",),
        "recompute": tuple(_mode_word(mode, grid.same_count) for mode in grid.modes),
        "offload_optimizer": tuple(percent / 100.0 for percent in grid.offload_percent),
    }


def _mode_word(mode: tuple[int, int], same_count: bool) -> str:
    low, high = (OPTION_WORDS[option] for option in mode)
    if low == high:
        return low
    where = "every virtual stage" if same_count else "each stage"
    return f"{high} on the first layers of {where}, {low} on the others"
