"""Shared cost tables of the cells that are being priced: grown as new points, meshes, splits and placements appear."""

from __future__ import annotations

import numpy as np

from solver.balance.batch import Candidates, Tables
from solver.cost import columns as col
from solver.cost.architecture import attention_flops_per_work, head_forward_flops_per_token, projection_flops_per_token
from solver.cost.operators import Points
from solver.cost.table import CostModel, MeshShape, peer_table
from solver.dimensions.layers import balanced_bounds, layer_weights, segment_bounds
from solver.frameworks import balanced_split
from solver.search.cells import STAGES, Cells
from solver.search.grid import BALANCED, EVEN, TIMED
from solver.search.timed import layer_seconds

REPEATED = -1
"""row of a timed cut that the space has under another rule"""


class TableBuilder:
    """Rows are looked up by key; a key seen before keeps its row."""

    def __init__(self, model: CostModel, *, sequence_parallel: bool) -> None:
        self.model = model
        self.sequence_parallel = sequence_parallel
        self.point_rows: dict[tuple[int, ...], int] = {}
        self.mesh_rows: dict[tuple[int, ...], int] = {}
        self.split_rows: dict[tuple[int, ...], int] = {}
        self.timed_rows: dict[tuple[int, ...], int] = {}
        self.placement_rows: dict[tuple[int, ...], int] = {}
        self.kinds = np.zeros((0, len(model.architecture.kinds), col.KIND_COLUMNS))
        self.points = np.zeros((0, col.POINT_COLUMNS))
        self.meshes = np.zeros((0, col.MESH_COLUMNS))
        self.fresh_bounds: list[np.ndarray] = []
        self.bounds = np.zeros(0, dtype=np.int64)
        self.split_start = np.zeros(1, dtype=np.int64)
        self.placements = np.zeros((0, 2, 1), dtype=np.int64)
        self.peers = peer_table(model)
        self.weights, self.head_weight = _relative_weights(model)

    def tables(self) -> Tables:
        """The tables as they are now."""
        self._join_bounds()
        return Tables(
            kinds=self.kinds,
            points=self.points,
            meshes=self.meshes,
            peers=self.peers,
            bounds=self.bounds,
            split_start=self.split_start,
            placements=self.placements,
        )

    def _join_bounds(self) -> None:
        """Append the splits that came since the last call to the flat array of all splits."""
        if self.fresh_bounds:
            ends = self.split_start[-1] + np.cumsum([len(bounds) for bounds in self.fresh_bounds])
            self.bounds = np.concatenate([self.bounds, *self.fresh_bounds])
            self.split_start = np.concatenate([self.split_start, ends.astype(np.int64)])
            self.fresh_bounds = []

    def candidates(
        self, cells: Cells, *, zero: np.ndarray, inside_node: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> Candidates:
        """One candidate per cell with the given states and recompute mixture, nothing offloaded."""
        size = len(cells)
        slot_mesh, cross = self._meshes(cells, zero, inside_node)
        return Candidates(
            stages=cells.stages,
            schedule=cells.schedule,
            vpp=cells.vpp,
            chains=cells.chains,
            placement=self._placements(cells),
            split=self._splits(cells),
            zero=np.broadcast_to(zero, (size,)).astype(np.int64),
            offload_percent=np.zeros(size, dtype=np.int64),
            low=np.broadcast_to(low, (size,)).astype(np.int64),
            high=np.broadcast_to(high, (size,)).astype(np.int64),
            mbs=cells.mbs,
            count=cells.dp,
            micro_batches=cells.micro,
            slot_point=self.points_of(cells),
            slot_mesh=slot_mesh,
            cross_mesh=cross,
        )

    def points_of(self, cells: Cells) -> np.ndarray:
        """int[cells, 2] rows of the point table of each slot."""
        found = np.empty((len(cells), 2), dtype=np.int64)
        for slot in range(2):
            keys = np.stack(
                [
                    cells.group[:, slot],
                    cells.tp[:, slot],
                    cells.cp[:, slot],
                    cells.cp_kind,
                    cells.ep[:, slot],
                    cells.etp[:, slot],
                    cells.mbs,
                ],
                axis=1,
            )
            distinct, inverse = distinct_rows(keys)
            self._add_points(distinct)
            rows = np.array([self.point_rows[tuple(key)] for key in distinct.tolist()])
            found[:, slot] = rows[inverse]
        return found

    def _add_points(self, keys: np.ndarray) -> None:
        fresh = np.array([key for key in keys.tolist() if tuple(key) not in self.point_rows], dtype=np.int64).reshape(-1, 7)
        for group in np.unique(fresh[:, 0]):
            rows = fresh[fresh[:, 0] == group]
            points = Points(
                tp=rows[:, 1],
                cp=rows[:, 2],
                cp_kind=rows[:, 3],
                ep=rows[:, 4],
                etp=rows[:, 5],
                mbs=rows[:, 6],
                sp=np.where(rows[:, 1] > 1, int(self.sequence_parallel), 0),
                row_tokens=self.model.scenarios.row_tokens,
            )
            kinds, table = self.model.point_tables(int(group), points)
            start = len(self.points)
            self.kinds = np.concatenate([self.kinds, kinds])
            self.points = np.concatenate([self.points, table])
            self.point_rows.update({tuple(key): start + index for index, key in enumerate(rows.tolist())})

    def _meshes(self, cells: Cells, zero: np.ndarray, inside_node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = cells.total_dp
        found = np.empty((len(cells), 2), dtype=np.int64)
        for slot in range(2):
            group, tp, cp = cells.group[:, slot], cells.tp[:, slot], cells.cp[:, slot]
            copies = np.where(inside_node & (zero > 0), self.copies(group, tp, cp * total), 1)
            keys = np.stack([group, tp, cp, total, cells.ep[:, slot], cells.etp[:, slot], copies], axis=1)
            distinct, inverse = distinct_rows(keys)
            self._add_meshes(distinct)
            rows = np.array([self.mesh_rows[tuple(key)] for key in distinct.tolist()])
            found[:, slot] = rows[inverse]
        return found, self._cross_meshes(cells)

    def slot_copies(self, cells: Cells) -> np.ndarray:
        """int[N, 2] copies of a shard group that stays inside one node, per slot."""
        ranks = cells.cp * cells.total_dp[:, None]
        return np.stack([self.copies(cells.group[:, slot], cells.tp[:, slot], ranks[:, slot]) for slot in range(2)], axis=1)

    def copies(self, group: np.ndarray, tp: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Copies of a shard group when it stays inside one node (1 when it cannot be cut there or a node holds one rank)."""
        per_node = np.array([entry.devices_per_node for entry in self.model.problem.cluster.groups])[group]
        inside = np.maximum(per_node // tp, 1)
        return np.where((inside > 1) & (ranks > inside) & (ranks % inside == 0), ranks // inside, 1)

    def _add_meshes(self, keys: np.ndarray) -> None:
        fresh = np.array([key for key in keys.tolist() if tuple(key) not in self.mesh_rows], dtype=np.int64).reshape(-1, 7)
        for group in np.unique(fresh[:, 0]):
            rows = fresh[fresh[:, 0] == group]
            shape = MeshShape(tp=rows[:, 1], cp=rows[:, 2], dp=rows[:, 3], ep=rows[:, 4], etp=rows[:, 5], replicate=rows[:, 6])
            start = len(self.meshes)
            self.meshes = np.concatenate([self.meshes, self.model.mesh_table(int(group), shape)])
            self.mesh_rows.update({tuple(key): start + index for index, key in enumerate(rows.tolist())})

    def _cross_meshes(self, cells: Cells) -> np.ndarray:
        found = np.zeros(len(cells), dtype=np.int64)
        mixed = np.flatnonzero(cells.chains > 1)
        if not len(mixed):
            return found
        chosen = cells.take(mixed)
        keys = np.stack(
            [
                chosen.group[:, 0],
                chosen.group[:, 1],
                chosen.dp[:, 0],
                chosen.dp[:, 1],
                chosen.tp[:, 0],
                chosen.cp[:, 0],
                chosen.ep[:, 0],
                chosen.etp[:, 0],
            ],
            axis=1,
        )
        distinct, inverse = distinct_rows(keys)
        rows = []
        for key in distinct.tolist():
            if tuple(key) not in self.mesh_rows:
                first, second, one, two, tp, cp, ep, etp = key
                row = self.model.cross_mesh(tuple(sorted(((first, one), (second, two)))), tp, cp, ep, etp)
                self.mesh_rows[tuple(key)] = len(self.meshes)
                self.meshes = np.concatenate([self.meshes, row[None, :]])
            rows.append(self.mesh_rows[tuple(key)])
        found[mixed] = np.array(rows)[inverse]
        return found

    def _splits(self, cells: Cells) -> np.ndarray:
        timed = cells.split == TIMED
        found = np.empty(len(cells), dtype=np.int64)
        if not timed.any():
            return self._classical_splits(cells)
        found[timed] = self._timed_splits(cells.take(timed))
        found[~timed] = self._classical_splits(cells.take(~timed))
        return found

    def _classical_splits(self, cells: Cells) -> np.ndarray:
        staged = cells.family == STAGES
        keys = np.stack(
            [
                staged.astype(np.int64),
                cells.stages,
                cells.chunks,
                cells.split,
                np.where(staged, cells.first_count[:, 0], 0),
                np.where(staged, cells.layers_first, 0),
            ],
            axis=1,
        )
        distinct, inverse = distinct_rows(keys)
        rows = []
        for key in distinct.tolist():
            if tuple(key) not in self.split_rows:
                self.split_rows[tuple(key)] = self._add_bounds(self.split_bounds(*key))
            rows.append(self.split_rows[tuple(key)])
        found: np.ndarray = np.array(rows, dtype=np.int64)[inverse]
        return found

    def _add_bounds(self, bounds: np.ndarray) -> int:
        self.fresh_bounds.append(bounds)
        return len(self.split_start) + len(self.fresh_bounds) - 2

    def new_cuts(self, cells: Cells) -> np.ndarray:
        """bool[cells]: false where a timed cut is that of another rule, so that the cell is in the space already."""
        fresh = np.ones(len(cells), dtype=bool)
        timed = np.flatnonzero(cells.split == TIMED)
        if len(timed):
            fresh[timed] = self._timed_splits(cells.take(timed)) != REPEATED
        return fresh

    def _timed_splits(self, cells: Cells) -> np.ndarray:
        """Rows of the timed cuts of cells, REPEATED where another rule gives the same cut."""
        keys, inverse = distinct_rows(np.stack([cells.stages * cells.chunks, self.points_of(cells)[:, 0]], axis=1))
        fresh = np.array([key for key in keys.tolist() if tuple(key) not in self.timed_rows], dtype=np.int64).reshape(-1, 2)
        for count in np.unique(fresh[:, 0]).tolist():
            points = fresh[fresh[:, 0] == count, 1]
            seconds = layer_seconds(self.kinds[points], self.points[points], self.model.scalars)
            cuts, which = distinct_rows(seconds.cuts(self.model.architecture.kind_of_layer, count))
            known = [self.split_bounds(0, count, 1, rule, 0, 0) for rule in (EVEN, BALANCED)]
            rows = [REPEATED if any((cut == other).all() for other in known) else self._add_bounds(cut) for cut in cuts]
            self.timed_rows.update({(count, point): rows[index] for point, index in zip(points.tolist(), which, strict=True)})
        found: np.ndarray = np.array([self.timed_rows[tuple(key)] for key in keys.tolist()], dtype=np.int64)[inverse]
        return found

    def split_bounds(self, staged: int, stages: int, chunks: int, split: int, first: int, layers_first: int) -> np.ndarray:
        """Layers per part of the pipeline of one key; timed cuts come from `_timed_splits`."""
        layers = len(self.weights)
        if staged:
            if layers_first < 0:
                layers_first = max(first, min(layers - (stages - first), layers * first // stages))
            return segment_bounds(
                self.weights, ((first, layers_first), (stages - first, layers - layers_first)), self.head_weight
            )
        if split == EVEN:
            return np.cumsum([0, *balanced_split(layers, stages * chunks)]).astype(np.int64)
        return balanced_bounds(self.weights, stages * chunks, 0.0, self.head_weight)

    def _placements(self, cells: Cells) -> np.ndarray:
        keys = np.stack(
            [cells.stages, cells.chains, cells.first_count[:, 0], np.where(cells.chains > 1, cells.first_count[:, 1], 0)], axis=1
        )
        distinct, inverse = distinct_rows(keys)
        rows = []
        for key in distinct.tolist():
            if tuple(key) not in self.placement_rows:
                self._add_placement(key)
            rows.append(self.placement_rows[tuple(key)])
        found: np.ndarray = np.array(rows, dtype=np.int64)[inverse]
        return found

    def _add_placement(self, key: list[int]) -> None:
        stages, chains, one, two = key
        width = max(stages, self.placements.shape[2])
        grown = np.zeros((len(self.placements) + 1, 2, width), dtype=np.int64)
        grown[:-1, :, : self.placements.shape[2]] = self.placements
        for chain, first in enumerate((one, two)[:chains]):
            grown[-1, chain, first:stages] = 1
        self.placement_rows[tuple(key)] = len(self.placements)
        self.placements = grown


def distinct_rows(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of an integer array and the position of each row among them (by packing rows into one integer)."""
    if not len(keys):
        return keys, np.zeros(0, dtype=np.int64)
    low = keys.min(axis=0)
    radix = keys.max(axis=0) - low + 1
    if float(np.prod(radix.astype(np.float64))) < 2.0**62:
        packed = np.zeros(len(keys), dtype=np.int64)
        for column in range(keys.shape[1]):
            packed = packed * radix[column] + (keys[:, column] - low[column])
        _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
        return keys[first], inverse.ravel()
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    return distinct, inverse.ravel()


def _relative_weights(model: CostModel) -> tuple[np.ndarray, float]:
    """FLOPs of each layer relative to the heaviest kind, and those of the head, at the mean row."""
    shape = model.architecture
    tokens = float(model.scenarios.row_tokens)
    squares = model.scenarios.least_work
    hidden = shape.model.hidden_size
    flops = [projection_flops_per_token(kind, hidden) + attention_flops_per_work(kind) * squares / tokens for kind in shape.kinds]
    weights = layer_weights(flops, shape.kind_of_layer)
    heaviest = max(flops)
    head = head_forward_flops_per_token(shape.model) / heaviest
    if shape.mtp_layers:
        head += shape.mtp_layers * flops[-1] / heaviest
    return weights, head
