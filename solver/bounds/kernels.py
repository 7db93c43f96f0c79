"""Compiled bounds of skeletons: operations without recompute, sharding traffic, synchronisation or optimizer, memory ignored.

All dropped terms are non-negative, so a bound holds for every ZeRO level, recompute, offload and memory outcome of the cell.
"""

from __future__ import annotations

import numpy as np

from solver.balance.batch_kernels import place, taken_work
from solver.balance.price_kernels import slowest_stage, step_bound
from solver.compiling import compiled
from solver.cost.columns import LEAST_WORK, MEAN_WORK, STEP_OVERHEAD
from solver.cost.time_kernels import operation_seconds
from solver.schedules.dispatch import pieces_of


@compiled
def skeleton_batch(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    scalars: np.ndarray,
    peers: np.ndarray,
    layer_kind: np.ndarray,
    all_bounds: np.ndarray,
    split_start: np.ndarray,
    placements: np.ndarray,
    stages_of: np.ndarray,
    vpp_of: np.ndarray,
    schedule_of: np.ndarray,
    chains_of: np.ndarray,
    placement_of: np.ndarray,
    split_of: np.ndarray,
    mbs_of: np.ndarray,
    count_of: np.ndarray,
    micro_of: np.ndarray,
    rows_of: np.ndarray,
    open_of: np.ndarray,
    slot_point_of: np.ndarray,
    slot_mesh_of: np.ndarray,
    cross_mesh_of: np.ndarray,
    row_work: np.ndarray,
    equal_rows: bool,
    bound: np.ndarray,
) -> None:
    """Write the bound of every skeleton; where `open_of`, the shares of the two chains are left open."""
    options = np.zeros(layer_kind.shape[0], dtype=np.int64)
    plain = int(np.int64(0))  # not a literal: a kernel is compiled once for any level
    scenarios = row_work.shape[0]
    total_work = np.empty(scenarios)
    deviation = np.zeros(scenarios)
    excess = np.zeros(scenarios)
    known_rows = -1
    known_mbs = -1
    known_micro = -1
    for index in range(stages_of.shape[0]):
        stages = stages_of[index]
        vpp = vpp_of[index]
        schedule = schedule_of[index]
        chains = chains_of[index]
        span = stages * vpp
        bounds = all_bounds[split_start[split_of[index]] : split_start[split_of[index]] + pieces_of(schedule, stages, vpp) + 1]
        point_at = np.empty((chains, stages), dtype=np.int64)
        mesh_at = np.empty((chains, stages), dtype=np.int64)
        placement = placements[placement_of[index]]
        place(
            points, placement, stages, chains, slot_point_of[index], slot_mesh_of[index], cross_mesh_of[index], point_at, mesh_at
        )
        forward = np.empty((chains, span, 2))
        backward = np.empty((chains, span, 2))
        weight = np.empty((chains, span))
        operation_seconds(
            kinds,
            points,
            meshes,
            scalars,
            peers,
            layer_kind,
            bounds,
            stages,
            vpp,
            schedule,
            point_at,
            mesh_at,
            plain,
            options,
            forward,
            backward,
            weight,
        )
        mbs = mbs_of[index]
        count = count_of[index, :chains]
        if open_of[index]:
            micro_batches = rows_of[index] // mbs
            if rows_of[index] != known_rows:
                known_rows = rows_of[index]
                work_deviation(row_work, known_rows, scalars, deviation, excess)
            bound[index] = open_share_bound(
                forward, backward, stages, vpp, schedule, count, micro_batches, mbs, deviation, excess, scalars
            )
            continue
        micro = micro_of[index, :chains]
        micro_batches = 0
        for chain in range(chains):
            micro_batches += count[chain] * micro[chain]
        if mbs != known_mbs or micro_batches != known_micro:
            known_mbs = mbs
            known_micro = micro_batches
            for scenario in range(scenarios):
                total_work[scenario] = taken_work(row_work[scenario], mbs, micro_batches, equal_rows)
        sync = np.zeros((chains, stages, 2))
        update = np.zeros((chains, stages))
        bound[index] = step_bound(forward, backward, stages, vpp, schedule, count, micro, mbs, total_work, sync, update, scalars)


@compiled
def open_share_bound(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    count: np.ndarray,
    micro_batches: int,
    mbs: int,
    deviation: np.ndarray,
    excess: np.ndarray,
    scalars: np.ndarray,
) -> float:
    """Bound over all ways to share `micro_batches` between chains with `count` replicas.

    With tau_c = seconds of a mean micro-batch on chain c's slowest stage, weights count_c / tau_c give
    T >= (sum over micro-batches of (b_c + s_c q) / tau_c + sum count_c alpha_c / tau_c) / sum(count_c / tau_c), and
    (b_c + s_c q) / tau_c = 1 + r_c (q - mean) with r_c = s_c / tau_c. A longer one costs at least the smaller r, a shorter one
    saves at most the larger: the sum is at least
    M - (larger - smaller) / 2 x sum |q - mean| + (larger + smaller) / 2 x sum (q - mean) [P].
    """
    mean = scalars[MEAN_WORK] * mbs
    least = scalars[LEAST_WORK] * mbs
    window = np.empty(3)
    weight = 0.0
    fixed = 0.0
    steep = 0.0
    flat = np.inf
    for chain in range(count.shape[0]):
        slowest_stage(
            forward, backward, stages, vpp, schedule, mean, least, chain, max(1, micro_batches // (2 * count[chain])), window
        )
        tau = window[1] + window[2] * mean
        weight += count[chain] / tau
        fixed += count[chain] * window[0] / tau
        steep = max(steep, window[2] / tau)
        flat = min(flat, window[2] / tau)
    total = 0.0
    for scenario in range(deviation.shape[0]):
        equivalent = micro_batches - 0.5 * (steep - flat) * deviation[scenario] + 0.5 * (steep + flat) * excess[scenario]
        total += (equivalent + fixed) / weight
    return float(total / deviation.shape[0] + scalars[STEP_OVERHEAD])


@compiled
def work_deviation(row_work: np.ndarray, rows: int, scalars: np.ndarray, deviation: np.ndarray, excess: np.ndarray) -> None:
    """Write, per scenario, sums of |work - mean| and (work - mean) over the rows; the worst case if not all are taken once."""
    for scenario in range(row_work.shape[0]):
        deviation[scenario] = 0.0
        excess[scenario] = 0.0
        if rows != row_work.shape[1]:
            excess[scenario] = -rows * (scalars[MEAN_WORK] - scalars[LEAST_WORK])
            deviation[scenario] = -excess[scenario]
            continue
        for row in range(rows):
            difference = row_work[scenario, row] - scalars[MEAN_WORK]
            deviation[scenario] += abs(difference)
            excess[scenario] += difference
