"""The compiled loop over candidates."""

from __future__ import annotations

import numpy as np

from solver.balance.end_kernels import first_stage_ends, step_ends
from solver.balance.price_kernels import step_bound, step_seconds
from solver.compiling import compiled
from solver.cost.columns import DEMAND_SAFE, HOST_LIMIT_BYTES, LIMIT_BYTES, POINT_GROUP
from solver.cost.memory_kernels import DEVICE, FITS, HOST, MEMORY_COLUMNS, SAFE, UNFIT
from solver.cost.recompute_kernels import choose_recompute
from solver.cost.time_kernels import operation_seconds
from solver.schedules.dispatch import pieces_of

PRUNED = -1
"""verdict of a candidate that its bound closed before its memory was looked at"""


@compiled
def place(
    points: np.ndarray,
    placement: np.ndarray,
    stages: int,
    chains: int,
    slot_point: np.ndarray,
    slot_mesh: np.ndarray,
    cross_mesh: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
) -> None:
    """Write the point and mesh of every chain's stages; a stage whose chains sit on unlike groups uses the cross mesh."""
    for stage in range(stages):
        mixed = False
        first = points[slot_point[placement[0, stage]], POINT_GROUP]
        for chain in range(1, chains):
            mixed = mixed or points[slot_point[placement[chain, stage]], POINT_GROUP] != first
        for chain in range(chains):
            slot = placement[chain, stage]
            point_at[chain, stage] = slot_point[slot]
            mesh_at[chain, stage] = cross_mesh if mixed else slot_mesh[slot]


@compiled
def least_headroom(points: np.ndarray, groups: np.ndarray, point_at: np.ndarray, memory: np.ndarray) -> float:
    """Least (limit - device) bytes over the ranks."""
    least = np.inf
    for chain in range(point_at.shape[0]):
        for stage in range(point_at.shape[1]):
            group = int(points[point_at[chain, stage], POINT_GROUP])
            least = min(least, groups[group, LIMIT_BYTES] - memory[chain, stage, DEVICE])
    return least


@compiled
def over_host(points: np.ndarray, groups: np.ndarray, point_at: np.ndarray, memory: np.ndarray) -> bool:
    """Whether a rank that was looked at keeps more in host memory than there is."""
    for chain in range(point_at.shape[0]):
        for stage in range(point_at.shape[1]):
            group = int(points[point_at[chain, stage], POINT_GROUP])
            if memory[chain, stage, HOST] > groups[group, HOST_LIMIT_BYTES]:
                return True
    return False


@compiled
def price_batch(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
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
    zero_of: np.ndarray,
    offload_of: np.ndarray,
    low_of: np.ndarray,
    high_of: np.ndarray,
    mbs_of: np.ndarray,
    count_of: np.ndarray,
    micro_of: np.ndarray,
    slot_point_of: np.ndarray,
    slot_mesh_of: np.ndarray,
    cross_mesh_of: np.ndarray,
    row_work: np.ndarray,
    equal_rows: bool,
    exact: bool,
    same_count: bool,
    at_most_s: np.ndarray,
    verdict: np.ndarray,
    bound: np.ndarray,
    seconds: np.ndarray,
    headroom: np.ndarray,
    host_over: np.ndarray,
    raised: np.ndarray,
) -> None:
    """Fill the outputs for every candidate.

    A candidate whose bound with the cheaper recompute everywhere already reaches `at_most_s` is PRUNED: its memory stays unseen.
    """
    demand = SAFE if scalars[DEMAND_SAFE] > 0.0 else FITS
    options = np.zeros(layer_kind.shape[0], dtype=np.int64)
    scenarios = row_work.shape[0]
    total_work = np.empty(scenarios)
    per_scenario = np.empty(scenarios)
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
        memory = np.zeros((chains, stages, MEMORY_COLUMNS))
        count = count_of[index, :chains]
        micro = micro_of[index, :chains]
        zero = zero_of[index]
        offload = offload_of[index] / 100.0
        for layer in range(options.shape[0]):
            options[layer] = low_of[index]
        mbs = mbs_of[index]
        micro_batches = 0
        for chain in range(chains):
            micro_batches += count[chain] * micro[chain]
        if mbs != known_mbs or micro_batches != known_micro:
            known_mbs = mbs
            known_micro = micro_batches
            for scenario in range(scenarios):
                total_work[scenario] = taken_work(row_work[scenario], mbs, micro_batches, equal_rows)
        forward = np.empty((chains, span, 2))
        backward = np.empty((chains, span, 2))
        weight = np.empty((chains, span))
        sync = np.empty((chains, stages, 2))
        update = np.empty((chains, stages))
        low = low_of[index]
        high = high_of[index]
        stale = True
        chosen = False
        while True:
            if stale:
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
                    zero,
                    options,
                    forward,
                    backward,
                    weight,
                )
            if chosen:
                step_ends(
                    kinds,
                    points,
                    meshes,
                    groups,
                    scalars,
                    layer_kind,
                    bounds,
                    stages,
                    vpp,
                    schedule,
                    point_at,
                    mesh_at,
                    zero,
                    offload,
                    micro,
                    forward,
                    backward,
                    sync,
                    update,
                )
            else:
                first_stage_ends(
                    kinds,
                    points,
                    meshes,
                    groups,
                    scalars,
                    layer_kind,
                    bounds,
                    stages,
                    vpp,
                    schedule,
                    point_at,
                    mesh_at,
                    zero,
                    offload,
                    micro,
                    low,
                    high,
                    forward,
                    backward,
                    sync,
                    update,
                )
            bound[index] = step_bound(
                forward, backward, stages, vpp, schedule, count, micro, mbs, total_work, sync, update, scalars
            )
            if chosen:
                break
            if bound[index] >= at_most_s[index]:
                verdict[index] = PRUNED
                break
            verdict[index] = choose_recompute(
                kinds,
                points,
                meshes,
                groups,
                scalars,
                layer_kind,
                bounds,
                stages,
                vpp,
                schedule,
                point_at,
                mesh_at,
                micro,
                zero,
                offload,
                low,
                high,
                same_count,
                options,
                memory,
            )
            if verdict[index] == UNFIT:
                host_over[index] = over_host(points, groups, point_at, memory)
                break
            headroom[index] = least_headroom(points, groups, point_at, memory)
            raised[index] = any_other(options, low)
            stale = raised[index]
            chosen = True
        if chosen and exact and verdict[index] >= demand and bound[index] < at_most_s[index]:
            seconds[index] = step_seconds(
                forward,
                backward,
                weight,
                stages,
                vpp,
                schedule,
                count,
                micro,
                mbs,
                row_work,
                equal_rows,
                sync,
                update,
                scalars,
                per_scenario,
            )


@compiled
def any_other(options: np.ndarray, low: int) -> bool:
    """Whether a layer has another recompute than `low`."""
    other = False
    for layer in range(options.shape[0]):
        other = other or options[layer] != low
    return other


@compiled
def taken_work(row_work: np.ndarray, mbs: int, micro_batches: int, equal_rows: bool) -> float:
    """Attention work of the micro-batches that are dealt (see `group_rows`)."""
    if equal_rows:
        return float(row_work[0] * mbs * micro_batches)
    present = row_work.shape[0] // mbs
    total = 0.0
    for index in range(micro_batches):
        source = index if present == micro_batches else min(present - 1, (index * present) // micro_batches)
        for row in range(mbs):
            total += row_work[source * mbs + row]
    return total
