"""Compiled memory of the stages of one layout, and the recompute that makes them fit.

A layout is `chains` of equal replicas over `stages`; `point_at`, `mesh_at` ([chains, stages]) name the table rows of each stage. Layers
sit on virtual stages by `bounds` ([stages * vpp + 1]); `options` ([layers]) is the recompute of each layer and is written by
`choose_recompute`.
"""

from __future__ import annotations

import numpy as np

from solver.cost.columns import (
    ACTIVATION,
    ALLOCATOR_FACTOR,
    BOUNDARY_BYTES,
    BUCKET_BYTES,
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    DEMAND_SAFE,
    DENSE_PARAMETERS,
    DEVICES_PER_NODE,
    DYNAMIC_ERROR,
    EMBEDDING_PARAMETERS,
    EXPERT_PARAMETERS,
    EXPERT_SHARD_RANKS,
    GATHER_BYTES,
    GRADIENT_STATE,
    HOST_LIMIT_BYTES,
    LIMIT_BYTES,
    LOGITS_BYTES,
    MESH_DP,
    MTP_KIND,
    MTP_LAYERS,
    NORM_PARAMETERS,
    OPTIMIZER_STATE,
    OPTION_FULL,
    OPTION_NONE,
    POINT_CP,
    POINT_EP,
    POINT_GROUP,
    POINT_TP,
    SHARD_RANKS,
    STATIC_ERROR,
    TABLE_PARAMETERS,
    TIED,
    WEIGHT_STATE,
)
from solver.schedules.kernels import compiled, in_flight

# columns of one stage's memory (float64[chains, stages, MEMORY_COLUMNS])
WEIGHTS = 0
GRADIENTS = 1
OPTIMIZER = 2
ACTIVATIONS = 3
WORKSPACE = 4
LOGITS = 5
BUFFERS = 6
CONTEXT = 7
DEVICE = 8
DEVICE_HIGH = 9
HOST = 10
MEMORY_COLUMNS = 11

UNFIT = 0
FITS = 1
SAFE = 2


@compiled
def stage_parameters(
    kinds: np.ndarray,
    points: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stage: int,
    stages: int,
    vpp: int,
    point: int,
    out: np.ndarray,
) -> None:
    """Write [dense, expert, largest layer, tables held] parameters of one rank of a stage."""
    dense = 0.0
    expert = 0.0
    largest = 0.0
    tables = 0.0
    for chunk in range(vpp):
        virtual = chunk * stages + stage
        for layer in range(bounds[virtual], bounds[virtual + 1]):
            kind = layer_kind[layer]
            one = kinds[point, kind, DENSE_PARAMETERS]
            two = kinds[point, kind, EXPERT_PARAMETERS]
            dense += one
            expert += two
            largest = max(largest, one + two)
    table = points[point, TABLE_PARAMETERS]
    if stage == 0:
        dense += points[point, EMBEDDING_PARAMETERS]
        tables = table
    if stage == stages - 1:
        dense += points[point, NORM_PARAMETERS]
        if scalars[TIED] == 0.0 or stages > 1:
            dense += table
        tables = table
        mtp_layers = int(scalars[MTP_LAYERS])
        if mtp_layers > 0:
            mtp = int(scalars[MTP_KIND])
            dense += mtp_layers * kinds[point, mtp, DENSE_PARAMETERS]
            expert += mtp_layers * kinds[point, mtp, EXPERT_PARAMETERS]
            largest = max(largest, kinds[point, mtp, DENSE_PARAMETERS] + kinds[point, mtp, EXPERT_PARAMETERS])
            if stages > 1 and scalars[TIED] == 0.0:
                dense += table
    out[0] = dense
    out[1] = expert
    out[2] = largest
    out[3] = tables


@compiled
def state_memory(
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    parameters: np.ndarray,
    point: int,
    mesh: int,
    stages: int,
    zero: int,
    offload: float,
    memory: np.ndarray,
) -> None:
    """Write weights, gradients, optimizer, buffers, context and host bytes of one rank (memory_spec: States, Peak)."""
    dense, expert = parameters[0], parameters[1]
    shard, expert_shard = meshes[mesh, SHARD_RANKS], meshes[mesh, EXPERT_SHARD_RANKS]
    whole = dense + expert
    cut = dense / shard + expert / expert_shard
    memory[WEIGHTS] = scalars[WEIGHT_STATE] * (cut if zero >= 3 else whole)
    memory[GRADIENTS] = scalars[GRADIENT_STATE] * (cut * (1.0 - offload) if zero >= 2 else whole)
    kept = cut if zero >= 1 else whole
    memory[OPTIMIZER] = scalars[OPTIMIZER_STATE] * kept * (1.0 - offload)
    buffers = points[point, GATHER_BYTES]
    if zero >= 3:
        buffers += (2.0 * scalars[WEIGHT_STATE] + scalars[GRADIENT_STATE]) * parameters[2] + scalars[WEIGHT_STATE] * parameters[3]
    elif zero == 2:
        buffers += min(scalars[BUCKET_BYTES], scalars[GRADIENT_STATE] * whole)
    memory[BUFFERS] = buffers
    communicators = 0
    for size in (points[point, POINT_TP], points[point, POINT_CP], meshes[mesh, MESH_DP], float(stages), points[point, POINT_EP]):
        if size > 1.0:
            communicators += 1
    memory[CONTEXT] = scalars[CONTEXT_BYTES] + scalars[COMMUNICATOR_BYTES] * communicators
    group = int(points[point, POINT_GROUP])
    memory[HOST] = offload * kept * (scalars[OPTIMIZER_STATE] + 4.0) * groups[group, DEVICES_PER_NODE]


@compiled
def finish_memory(
    groups: np.ndarray,
    points: np.ndarray,
    scalars: np.ndarray,
    point: int,
    stage: int,
    stages: int,
    saved: float,
    widest: float,
    rebuilt: bool,
    flight: float,
    memory: np.ndarray,
) -> int:
    """Write the activation columns and the totals; the verdict of the rank."""
    memory[ACTIVATIONS] = flight * (saved + points[point, BOUNDARY_BYTES])
    work = widest if rebuilt else 0.5 * widest
    logits = points[point, LOGITS_BYTES] if stage == stages - 1 else 0.0
    memory[WORKSPACE] = work if work >= logits else 0.0
    memory[LOGITS] = logits if logits > work else 0.0
    static = memory[WEIGHTS] + memory[GRADIENTS] + memory[OPTIMIZER]
    dynamic = (memory[ACTIVATIONS] + max(work, logits) + memory[BUFFERS]) * scalars[ALLOCATOR_FACTOR]
    memory[DEVICE] = static + dynamic + memory[CONTEXT]
    error = scalars[STATIC_ERROR] * (static + memory[CONTEXT]) + scalars[DYNAMIC_ERROR] * dynamic
    memory[DEVICE_HIGH] = memory[DEVICE] + error
    group = int(points[point, POINT_GROUP])
    if memory[HOST] > groups[group, HOST_LIMIT_BYTES] or memory[DEVICE] > groups[group, LIMIT_BYTES]:
        return UNFIT
    return SAFE if memory[DEVICE_HIGH] <= groups[group, LIMIT_BYTES] else FITS


@compiled
def layer_memory(
    kinds: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    options: np.ndarray,
    stage: int,
    stages: int,
    vpp: int,
    point: int,
    out: np.ndarray,
) -> bool:
    """Write [saved bytes, widest layer] of one micro-batch on a stage; whether a layer is fully recomputed."""
    saved = 0.0
    widest = 0.0
    rebuilt = False
    last_option = OPTION_NONE
    for chunk in range(vpp):
        virtual = chunk * stages + stage
        for layer in range(bounds[virtual], bounds[virtual + 1]):
            kind = layer_kind[layer]
            last_option = options[layer]
            saved += kinds[point, kind, ACTIVATION + last_option]
            widest = max(widest, kinds[point, kind, ACTIVATION + OPTION_NONE])
            rebuilt = rebuilt or last_option == OPTION_FULL
    mtp_layers = int(scalars[MTP_LAYERS])
    if stage == stages - 1 and mtp_layers > 0:
        mtp = int(scalars[MTP_KIND])
        saved += mtp_layers * kinds[point, mtp, ACTIVATION + last_option]
        widest = max(widest, kinds[point, mtp, ACTIVATION + OPTION_NONE])
    out[0] = saved
    out[1] = widest
    return rebuilt


@compiled
def set_first_layers(
    options: np.ndarray,
    bounds: np.ndarray,
    stage: int,
    stages: int,
    vpp: int,
    count: int,
    per_chunk: bool,
    low: int,
    high: int,
) -> None:
    """Recompute the first `count` layers of a stage (of each of its chunks if `per_chunk`) with `high`, the others with `low`."""
    done = 0
    for chunk in range(vpp):
        virtual = chunk * stages + stage
        if per_chunk:
            done = 0
        for layer in range(bounds[virtual], bounds[virtual + 1]):
            options[layer] = high if done < count else low
            done += 1


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
    (Megatron's `block`). `low == high` leaves nothing to choose.
    """
    common = 0
    while True:
        before = common
        least = SAFE
        for stage in range(stages):
            longest = longest_count(bounds, stage, stages, vpp, same_count)
            first = longest if low == high else min(common, longest)
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
            )
            if verdict == UNFIT:
                return UNFIT
            if same_count and low != high:
                common = max(common, count)
            least = min(least, verdict)
        if common == before:
            return least


@compiled
def longest_count(bounds: np.ndarray, stage: int, stages: int, vpp: int, same_count: bool) -> int:
    """Layers of a stage, or of its longest chunk when counts are per chunk."""
    longest = 0
    for chunk in range(vpp):
        width = bounds[chunk * stages + stage + 1] - bounds[chunk * stages + stage]
        longest = max(longest, width) if same_count else longest + width
    return longest


@compiled
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
) -> tuple[int, int]:
    """(count, verdict) of one stage: the least count in first ... longest that fits as demanded, `longest` when none does.

    Above one layer the bytes fall with the count, so it is found by bisection; the step from none to one may raise them (working set).
    """
    demand = SAFE if scalars[DEMAND_SAFE] > 0.0 else FITS
    below = first
    above = longest
    count = first
    verdict = UNFIT
    probes = 0
    while True:
        set_first_layers(options, bounds, stage, stages, vpp, count, same_count, low, high)
        verdict = stage_verdict(
            kinds,
            points,
            meshes,
            groups,
            scalars,
            layer_kind,
            bounds,
            stages,
            vpp,
            point_at,
            mesh_at,
            micro_batches,
            zero,
            offload,
            options,
            stage,
            memory,
        )
        probes += 1
        if probes == 1:
            if verdict >= demand or first >= longest or hopeless(points, groups, point_at, memory, stage):
                return count, verdict
            count = longest
            continue
        if probes == 2:
            if verdict < demand:
                return count, verdict
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


@compiled
def hopeless(points: np.ndarray, groups: np.ndarray, point_at: np.ndarray, memory: np.ndarray, stage: int) -> bool:
    """Whether states and host bytes alone are over a limit, whatever is recomputed."""
    for chain in range(point_at.shape[0]):
        group = int(points[point_at[chain, stage], POINT_GROUP])
        entry = memory[chain, stage]
        static = entry[WEIGHTS] + entry[GRADIENTS] + entry[OPTIMIZER] + entry[BUFFERS] + entry[CONTEXT]
        if static > groups[group, LIMIT_BYTES] or entry[HOST] > groups[group, HOST_LIMIT_BYTES]:
            return True
    return False


@compiled
def stage_verdict(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    micro_batches: np.ndarray,
    zero: int,
    offload: float,
    options: np.ndarray,
    stage: int,
    memory: np.ndarray,
) -> int:
    """Fill `memory[chains, stage]` for the current options; the least verdict over chains."""
    parameters = np.empty(4)
    layers = np.empty(2)
    least = SAFE
    for chain in range(point_at.shape[0]):
        point = point_at[chain, stage]
        stage_parameters(kinds, points, scalars, layer_kind, bounds, stage, stages, vpp, point, parameters)
        entry = memory[chain, stage]
        state_memory(points, meshes, groups, scalars, parameters, point, mesh_at[chain, stage], stages, zero, offload, entry)
        rebuilt = layer_memory(kinds, scalars, layer_kind, bounds, options, stage, stages, vpp, point, layers)
        flight = in_flight(stage, stages, vpp, micro_batches[chain])
        verdict = finish_memory(groups, points, scalars, point, stage, stages, layers[0], layers[1], rebuilt, flight, entry)
        least = min(least, verdict)
    return least
