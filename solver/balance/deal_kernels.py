"""Compiled dealing of rows to replicas, longest first."""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled


@compiled
def group_rows(work: np.ndarray, mbs: int, micro_batches: int, out: np.ndarray) -> None:
    """Attention work of `micro_batches` micro-batches of `mbs` neighbouring rows of `work` (sorted, longest first).

    When a tolerated batch needs fewer or more micro-batches than there are, they are taken at even distances.
    """
    present = work.shape[0] // mbs
    for index in range(micro_batches):
        source = index if present == micro_batches else min(present - 1, (index * present) // micro_batches)
        total = 0.0
        for row in range(mbs):
            total += work[source * mbs + row]
        out[index] = total


@compiled
def deal(
    work: np.ndarray,
    count: np.ndarray,
    micro_batches: np.ndarray,
    base_s: np.ndarray,
    slope_s: np.ndarray,
    dealt: np.ndarray,
) -> None:
    """Deal micro-batches, longest first, to the replica that would finish it first and still has room.

    `count`, `micro_batches`, `base_s`, `slope_s`: [chains] replicas, their capacity, and seconds of a micro-batch on the slowest
    stage; `dealt`: [replicas, largest micro_batches], replicas in chain order.
    """
    replicas = 0
    for chain in range(count.shape[0]):
        replicas += count[chain]
    load = np.zeros(replicas)
    filled = np.zeros(replicas, dtype=np.int64)
    for index in range(work.shape[0]):
        best = -1
        best_load = np.inf
        replica = 0
        for chain in range(count.shape[0]):
            cost = base_s[chain] + slope_s[chain] * work[index]
            for _ in range(count[chain]):
                if filled[replica] < micro_batches[chain] and load[replica] + cost < best_load:
                    best_load = load[replica] + cost
                    best = replica
                replica += 1
        dealt[best, filled[best]] = work[index]
        filled[best] += 1
        load[best] = best_load
