"""Cells of the search space as arrays: a skeleton of degrees; the layouts inside differ in states, recompute and offload.

Families: `uniform` (one group, or classical words over two groups in rank order), `replicas` (equal meshes on two groups with
unequal shares), `stages` (first stages on one group, the rest on another, layers follow speed). A coarse `replicas` or `stages`
cell still leaves its shares or its layer split open (`level` 0) and is split before it is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from solver.layout import SCHEDULE_KINDS

UNIFORM, REPLICAS, STAGES = 0, 1, 2
FAMILY_NAMES = ("uniform", "replicas", "stages")
DUALPIPE = SCHEDULE_KINDS.index("dualpipe")


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """N cells. [N, 2] arrays are per slot (the two groups of the pair; the second repeats the first when there is one).

    `schedule` by its code. `first_count[N, 2]`: stages of chain 0 and 1 that sit on slot 0 (the others on slot 1). `dp[N, 2]`
    replicas and `micro[N, 2]` micro-batches per chain; `layers_first` layers on slot 0 of a `stages` cell, -1 while open.
    `devices[N, 2]` used per slot.
    """

    family: np.ndarray
    level: np.ndarray
    group: np.ndarray
    stages: np.ndarray
    schedule: np.ndarray
    vpp: np.ndarray
    mbs: np.ndarray
    split: np.ndarray
    tp: np.ndarray
    cp: np.ndarray
    cp_kind: np.ndarray
    ep: np.ndarray
    etp: np.ndarray
    chains: np.ndarray
    dp: np.ndarray
    micro: np.ndarray
    first_count: np.ndarray
    layers_first: np.ndarray
    rows: np.ndarray
    leaves: np.ndarray

    def __len__(self) -> int:
        return int(self.family.shape[0])

    def take(self, index: np.ndarray) -> Cells:
        """The cells at `index` (integers or a mask; a mask of all is no copy)."""
        if index.dtype == np.bool_ and index.all():
            return self
        return Cells(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def replaced(self, **changes: np.ndarray) -> Cells:
        """The same cells with some arrays exchanged."""
        return Cells(**{field.name: changes.get(field.name, getattr(self, field.name)) for field in fields(self)})

    @staticmethod
    def concatenate(parts: list[Cells]) -> Cells:
        """All cells of several parts."""
        if len(parts) == 1:
            return parts[0]
        return Cells(**{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Cells)})

    @property
    def chunks(self) -> np.ndarray:
        """Parts of the pipeline's layers per stage: `vpp`, half of it where every layer is held twice."""
        return np.where(self.schedule == DUALPIPE, self.vpp // 2, self.vpp)

    @property
    def total_dp(self) -> np.ndarray:
        """Replicas of the last stage: those of all its chains."""
        active = np.arange(2)[None, :] < self.chains[:, None]
        summed: np.ndarray = np.where(active, self.dp, 0).sum(axis=1)
        return summed

    @property
    def devices(self) -> np.ndarray:
        """int[N, 2] devices in use on each slot."""
        size = self.tp * self.cp
        used = np.zeros((len(self), 2), dtype=np.int64)
        for chain in range(2):
            active = chain < self.chains
            first = self.first_count[:, chain]
            used[:, 0] += np.where(active, self.dp[:, chain] * first * size[:, 0], 0)
            used[:, 1] += np.where(active, self.dp[:, chain] * (self.stages - first) * size[:, 1], 0)
        return used


PAIRED = frozenset({"group", "tp", "cp", "ep", "etp", "dp", "micro", "first_count"})


def no_cells() -> Cells:
    """An empty set."""
    return make_cells(
        0, **{field.name: np.zeros((0, 2) if field.name in PAIRED else 0, dtype=np.int64) for field in fields(Cells)}
    )


def make_cells(size: int, **columns: np.ndarray | int | float) -> Cells:
    """Cells from columns that broadcast to `size` (or [size, 2])."""
    arrays = {}
    for field in fields(Cells):
        column = columns[field.name]
        shape = (size, 2) if field.name in PAIRED else (size,)
        if isinstance(column, int):
            arrays[field.name] = np.full(shape, column, dtype=np.int64)
            continue
        value = np.asarray(column)
        if field.name in PAIRED and value.ndim == 1 and value.shape[0] == size:
            value = value[:, None]
        arrays[field.name] = np.ascontiguousarray(np.broadcast_to(value, shape)).astype(np.int64)
    return Cells(**arrays)
