"""Compiled choice of recompute: the fewest layers that make every rank of a layout fit (arguments as in `memory_kernels`)."""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled, inlined
from solver.cost.columns import DEMAND_SAFE, HOST_LIMIT_BYTES, LIMIT_BYTES, POINT_GROUP
from solver.cost.memory_kernels import (
    BUFFERS,
    CONTEXT,
    FITS,
    GRADIENTS,
    HOST,
    OPTIMIZER,
    SAFE,
    UNFIT,
    WEIGHTS,
    copy_states,
    stage_states,
    stage_verdict,
)
from solver.cost.twin_kernels import twin_of_previous
from solver.schedules.dispatch import DUALPIPE, in_flight, piece_of


@compiled
def choose_recompute(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    micro_batches: np.ndarray,
    zero: int,
    offload: float,
    low: int,
    high: int,
    same_count: bool,
    options: np.ndarray,
    memory: np.ndarray,
) -> int:
    """Recompute the fewest layers that make every rank fit as demanded; the least verdict (UNFIT, FITS or SAFE).

    Stage by stage: time of a stage rises with its count and stages do not share memory, so the least counts are optimal for
    given `low` and `high` (the step is monotone in every operation's time). `same_count` forces one count on all virtual stages
    (Megatron's `block`), as do two copies of every layer. `low == high` leaves nothing to choose.
    """
    same_count = same_count or schedule == DUALPIPE
    demand = SAFE if scalars[DEMAND_SAFE] > 0.0 else FITS
    common = 0
    while True:
        before = common
        least = SAFE
        count = 0
        verdict = UNFIT
        for stage in range(stages):
            longest = longest_count(bounds, stage, stages, vpp, schedule, same_count)
            first = longest if low == high else min(common, longest)
            twin = twin_of_previous(layer_kind, bounds, stages, vpp, schedule, point_at, mesh_at, stage)
            twin = twin and no_more_in_flight(micro_batches, stages, vpp, schedule, stage)
            known = count if twin and verdict >= demand else longest + 1
            count, verdict = least_count(
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
                micro_batches,
                zero,
                offload,
                low,
                high,
                same_count,
                options,
                memory,
                stage,
                first,
                longest,
                twin,
                known,
            )
            if verdict == UNFIT:
                return UNFIT
            if same_count and low != high:
                common = max(common, count)
            least = min(least, verdict)
        if common == before:
            return least


@inlined
def no_more_in_flight(micro_batches: np.ndarray, stages: int, vpp: int, schedule: int, stage: int) -> bool:
    """Whether a stage holds at most as many micro-batches at once as the stage before it, on every chain."""
    fewer = True
    for chain in range(micro_batches.shape[0]):
        before = in_flight(schedule, stage - 1, stages, vpp, micro_batches[chain])
        fewer = fewer and in_flight(schedule, stage, stages, vpp, micro_batches[chain]) <= before
    return fewer


@inlined
def least_count(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    micro_batches: np.ndarray,
    zero: int,
    offload: float,
    low: int,
    high: int,
    same_count: bool,
    options: np.ndarray,
    memory: np.ndarray,
    stage: int,
    first: int,
    longest: int,
    twin: bool,
    known: int,
) -> tuple[int, int]:
    """(count, verdict) of one stage: the least count in first ... longest that fits as demanded, `longest` when none does.

    Above one layer the bytes fall with the count, so it is found by bisection; from none to one they may rise (working set).
    A `twin` of the stage before it has its states and no more micro-batches in flight: what fitted there (`known` <= longest)
    fits here.
    """
    if twin:
        copy_states(memory, stage)
    else:
        stage_states(
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
            stage,
            memory,
        )
        if hopeless(points, groups, point_at, memory, stage):
            return first, UNFIT
    demand = SAFE if scalars[DEMAND_SAFE] > 0.0 else FITS
    settled = first < known <= longest
    below = first
    above = known if settled else longest
    count = first
    verdict = UNFIT
    while True:
        set_first_layers(options, bounds, stage, stages, vpp, schedule, count, same_count, low, high)
        verdict = stage_verdict(
            kinds,
            points,
            groups,
            scalars,
            layer_kind,
            bounds,
            stages,
            vpp,
            schedule,
            point_at,
            micro_batches,
            options,
            stage,
            memory,
        )
        if count == first:
            if verdict >= demand or first >= longest:
                return count, verdict
            if not settled:
                count = longest
                continue
        elif not settled:
            if verdict < demand:
                return count, verdict
            settled = True
        elif verdict >= demand:
            above = count
        else:
            below = count
        if above - below <= 1:
            if count == above:
                return count, verdict
            count = above
            continue
        count = (below + above) // 2


@inlined
def longest_count(bounds: np.ndarray, stage: int, stages: int, vpp: int, schedule: int, same_count: bool) -> int:
    """Layers of a stage, or of its longest chunk when counts are per chunk."""
    longest = 0
    for chunk in range(vpp):
        piece = piece_of(schedule, chunk, stage, stages)
        width = bounds[piece + 1] - bounds[piece]
        longest = max(longest, width) if same_count else longest + width
    return longest


@inlined
def set_first_layers(
    options: np.ndarray,
    bounds: np.ndarray,
    stage: int,
    stages: int,
    vpp: int,
    schedule: int,
    count: int,
    per_chunk: bool,
    low: int,
    high: int,
) -> None:
    """Recompute the first `count` layers of a stage (of each of its chunks if `per_chunk`) with `high`, the others with `low`."""
    done = 0
    for chunk in range(vpp):
        piece = piece_of(schedule, chunk, stage, stages)
        if per_chunk:
            done = 0
        for layer in range(bounds[piece], bounds[piece + 1]):
            options[layer] = high if done < count else low
            done += 1


@inlined
def hopeless(points: np.ndarray, groups: np.ndarray, point_at: np.ndarray, memory: np.ndarray, stage: int) -> bool:
    """Whether states and host bytes alone are over a limit, whatever is recomputed."""
    for chain in range(point_at.shape[0]):
        group = int(points[point_at[chain, stage], POINT_GROUP])
        static = memory[chain, stage, WEIGHTS] + memory[chain, stage, GRADIENTS] + memory[chain, stage, OPTIMIZER]
        static += memory[chain, stage, BUFFERS] + memory[chain, stage, CONTEXT]
        if static > groups[group, LIMIT_BYTES] or memory[chain, stage, HOST] > groups[group, HOST_LIMIT_BYTES]:
            return True
    return False
