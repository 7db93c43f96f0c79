"""Cells of the recounted space as batches of the cost kernels, and their bounds and prices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.balance.batch import Candidates, Prices, Tables, price
from solver.bounds import SkeletonBounds, skeleton_bounds
from solver.cost.operators import Points
from solver.cost.table import MeshShape, peer_table
from solver.replay.options import CP_KINDS, Options
from solver.replay.space import REPLICAS, STAGES, Cell, Chain, Variant, chains_of, shard_copies
from solver.replay.splits import point_of, split_bounds
from solver.schedules import get_schedule

BLOCK = 4096
"""candidates priced by one call"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A cell with a choice inside it."""

    cell: Cell
    variant: Variant
    offload_percent: int


@dataclass(slots=True, eq=False)
class _Rows:
    """A table that grows: the row of a key is computed once."""

    rows: list[np.ndarray] = field(default_factory=list)
    found: dict[Hashable, int] = field(default_factory=dict)

    def add(self, key: Hashable, row: np.ndarray) -> int:
        self.found[key] = len(self.rows)
        self.rows.append(row)
        return self.found[key]


class Arrays:
    """Tables of one problem, and calls of the kernels on entries."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.model = options.model
        self._kinds, self._points, self._meshes, self._splits = _Rows(), _Rows(), _Rows(), _Rows()
        self._placements = _Rows()

    # ----------------------------------------------------------------------------------------------------------------- kernels
    def skeletons(self, cells: Sequence[Cell]) -> np.ndarray:
        """Seconds that no layout of each cell can undercut."""
        plain = Variant(zero=0, inside_node=False, modes=(0, 0))
        found = [np.empty(0)]
        for start in range(0, len(cells), BLOCK):
            block = cells[start : start + BLOCK]
            candidates = self.candidates([Entry(cell, plain, 0) for cell in block])
            open_stages = [cell.first_stages or 0 if cell.family == STAGES and cell.first_layers is None else 0 for cell in block]
            parts = SkeletonBounds(
                shares_open=np.array([cell.family == REPLICAS and cell.is_open for cell in block]),
                first_stages=np.array(open_stages, dtype=np.int64),
                rows=np.array([cell.rows for cell in block], dtype=np.int64),
            )
            found.append(skeleton_bounds(self.model, self._tables(), candidates, parts))
        return np.concatenate(found)

    def prices(
        self, entries: Sequence[Entry], *, exact: bool, at_most_s: np.ndarray | None = None
    ) -> Iterator[tuple[int, Prices]]:
        """(first entry, prices) block by block."""
        same_count = self.options.rules.capabilities.per_layer_recompute == "per_stage_count"
        for start in range(0, len(entries), BLOCK):
            block = entries[start : start + BLOCK]
            limit = None if at_most_s is None else at_most_s[start : start + BLOCK]
            candidates = self.candidates(block)
            yield start, price(self.model, self._tables(), candidates, exact=exact, same_count=same_count, at_most_s=limit)

    # ------------------------------------------------------------------------------------------------------------------ arrays
    def candidates(self, entries: Sequence[Entry]) -> Candidates:
        """One candidate per entry."""
        rows = [self._row(entry) for entry in entries]
        return Candidates(**{name: np.array([row[name] for row in rows], dtype=np.int64) for name in rows[0]})

    def _row(self, entry: Entry) -> dict[str, int | list[int]]:
        cell, variant = entry.cell, entry.variant
        chains = _chains(self.options, cell)
        alone = cell.cp * cell.total_dp == 1
        zero = 0 if alone else variant.zero
        slots = range(2) if len(cell.groups) > 1 else (0, 0)
        copies = shard_copies(self.options, cell) if variant.inside_node and zero else [1] * len(cell.groups)
        padded = [*chains, Chain(0, 0, 0)][:2]
        return {
            "stages": cell.pp,
            "schedule": get_schedule(cell.schedule).code,
            "vpp": cell.vpp,
            "chains": len(chains),
            "placement": self._placement(cell.pp, chains),
            "split": self._split(cell),
            "zero": zero,
            "offload_percent": entry.offload_percent,
            "low": variant.modes[0],
            "high": variant.modes[1],
            "mbs": cell.mbs,
            "count": [chain.count for chain in padded],
            "micro_batches": [chain.micro_batches for chain in padded],
            "slot_point": [self._point(cell, slot) for slot in slots],
            "slot_mesh": [self._mesh(cell, slot, copies[slot]) for slot in slots],
            "cross_mesh": self._cross_mesh(cell, chains) if len(chains) > 1 else 0,
        }

    def _tables(self) -> Tables:
        starts = np.cumsum([0, *(len(bounds) for bounds in self._splits.rows)])
        width = max(row.shape[1] for row in self._placements.rows)
        placements = np.array([np.pad(row, ((0, 0), (0, width - row.shape[1]))) for row in self._placements.rows])
        return Tables(
            kinds=np.array(self._kinds.rows),
            points=np.array(self._points.rows),
            meshes=np.array(self._meshes.rows),
            peers=peer_table(self.model),
            bounds=np.concatenate(self._splits.rows),
            split_start=starts.astype(np.int64),
            placements=placements,
        )

    def _point(self, cell: Cell, slot: int) -> int:
        key = (cell.groups[slot], cell.tp[slot], cell.cp, cell.cp_kind, cell.ep, cell.etp, cell.mbs)
        if key in self._points.found:
            return self._points.found[key]
        sizes = (cell.tp[slot], cell.cp, CP_KINDS.index(cell.cp_kind), cell.ep, cell.etp, cell.mbs)
        tp, cp, cp_kind, ep, etp, mbs = (np.array([size]) for size in sizes)
        parallel = np.array([int(cell.tp[slot] > 1 and self.options.sequence_parallel)])
        tokens = self.model.scenarios.row_tokens
        points = Points(tp=tp, cp=cp, cp_kind=cp_kind, ep=ep, etp=etp, mbs=mbs, sp=parallel, row_tokens=tokens)
        kinds, table = self.model.point_tables(cell.groups[slot], points)
        self._kinds.add(key, kinds[0])
        return self._points.add(key, table[0])

    def _mesh(self, cell: Cell, slot: int, copies: int) -> int:
        group, dp = cell.groups[slot], cell.total_dp
        key = (group, cell.tp[slot], cell.cp, dp, cell.ep, cell.etp, copies)
        if key in self._meshes.found:
            return self._meshes.found[key]
        shape = MeshShape.of(tp=cell.tp[slot], cp=cell.cp, dp=dp, ep=cell.ep, etp=cell.etp, replicate=copies)
        return self._meshes.add(key, self.model.mesh_table(group, shape)[0])

    def _cross_mesh(self, cell: Cell, chains: Sequence[Chain]) -> int:
        spread = tuple(sorted((group, chain.count) for group, chain in zip(cell.groups, chains, strict=True)))
        key = (spread, cell.tp[0], cell.cp, cell.ep, cell.etp)
        if key in self._meshes.found:
            return self._meshes.found[key]
        return self._meshes.add(key, self.model.cross_mesh(spread, cell.tp[0], cell.cp, cell.ep, cell.etp))

    def _split(self, cell: Cell) -> int:
        point = point_of(cell) if cell.split == "timed" else None
        key = (cell.pieces, cell.split, cell.first_stages, cell.first_layers, point)
        if key in self._splits.found:
            return self._splits.found[key]
        return self._splits.add(key, split_bounds(self.options, cell))

    def _placement(self, pp: int, chains: Sequence[Chain]) -> int:
        key = (pp, tuple(chain.first for chain in chains))
        if key in self._placements.found:
            return self._placements.found[key]
        row = np.zeros((2, pp), dtype=np.int64)
        for index, chain in enumerate(chains):
            row[index, chain.first :] = 1
        return self._placements.add(key, row)


def _chains(options: Options, cell: Cell) -> tuple[Chain, ...]:
    """Chains of a cell; open shares have no micro-batches yet."""
    if cell.micro_batches is None:
        assert isinstance(cell.dp, tuple)
        return Chain(cell.dp[0], cell.pp, 0), Chain(cell.dp[1], 0, 0)
    return chains_of(options, cell)
