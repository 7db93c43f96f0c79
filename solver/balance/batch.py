"""A batch of candidate layouts as arrays, and its price by one compiled call.

Candidates name rows of shared tables: points (shards on one group), meshes (gradient groups), splits (layers per virtual stage)
and placements (which slot, i.e. which group's point, each stage of each chain uses).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from solver.balance.batch_kernels import price_batch
from solver.cost.table import CostModel

UNEVALUATED = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What the candidates of one batch point into."""

    kinds: np.ndarray
    points: np.ndarray
    meshes: np.ndarray
    peers: np.ndarray
    bounds: np.ndarray
    split_start: np.ndarray
    placements: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Arrays of N candidates; [N, C] per chain of replicas, [N, S] per slot."""

    stages: np.ndarray
    vpp: np.ndarray
    schedule: np.ndarray
    chains: np.ndarray
    placement: np.ndarray
    split: np.ndarray
    zero: np.ndarray
    offload_percent: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mbs: np.ndarray
    count: np.ndarray
    micro_batches: np.ndarray
    slot_point: np.ndarray
    slot_mesh: np.ndarray
    cross_mesh: np.ndarray

    def __len__(self) -> int:
        return int(self.stages.shape[0])

    def take(self, index: np.ndarray) -> Candidates:
        """The candidates at `index`."""
        return Candidates(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def with_offload(self, percent: int) -> Candidates:
        """The same candidates with another optimizer offload."""
        return replace(self, offload_percent=np.full(len(self), percent, dtype=np.int64))

    @staticmethod
    def concatenate(parts: list[Candidates]) -> Candidates:
        """All candidates of several batches over the same tables."""
        joined = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Candidates)}
        return Candidates(**joined)


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Per candidate: memory verdict (-1 closed by its bound, 0 no, 1 fits, 2 safe), admissible bound and price in seconds, least
    free bytes below the limit, whether host memory (not the device) is what does not fit, whether a layer
    needs the costlier recompute of a mixture to fit."""

    verdict: np.ndarray
    bound_s: np.ndarray
    seconds: np.ndarray
    headroom_bytes: np.ndarray
    host_over: np.ndarray
    raised: np.ndarray


def price(
    model: CostModel,
    tables: Tables,
    candidates: Candidates,
    *,
    exact: bool,
    same_count: bool,
    at_most_s: np.ndarray | None = None,
) -> Prices:
    """Price a batch. `exact` runs the schedule for every candidate that fits and whose bound is below `at_most_s`."""
    size = len(candidates)
    verdict = np.zeros(size, dtype=np.int64)
    bound = np.full(size, np.inf)
    seconds = np.full(size, UNEVALUATED)
    headroom = np.full(size, -np.inf)
    host_over = np.zeros(size, dtype=np.bool_)
    raised = np.zeros(size, dtype=np.bool_)
    if size:
        scenarios = model.scenarios
        price_batch(
            tables.kinds,
            tables.points,
            tables.meshes,
            model.groups,
            model.scalars,
            tables.peers,
            model.architecture.kind_of_layer,
            tables.bounds,
            tables.split_start,
            tables.placements,
            candidates.stages,
            candidates.vpp,
            candidates.schedule,
            candidates.chains,
            candidates.placement,
            candidates.split,
            candidates.zero,
            candidates.offload_percent,
            candidates.low,
            candidates.high,
            candidates.mbs,
            candidates.count,
            candidates.micro_batches,
            candidates.slot_point,
            candidates.slot_mesh,
            candidates.cross_mesh,
            scenarios.work,
            scenarios.equal_rows,
            exact,
            same_count,
            np.full(size, np.inf) if at_most_s is None else at_most_s,
            verdict,
            bound,
            seconds,
            headroom,
            host_over,
            raised,
        )
    return Prices(verdict=verdict, bound_s=bound, seconds=seconds, headroom_bytes=headroom, host_over=host_over, raised=raised)
