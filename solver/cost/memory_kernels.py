"""Compiled memory of the stages of one layout.

A layout is `chains` of equal replicas over `stages`; `point_at`, `mesh_at` ([chains, stages]) name the table rows of each stage.
Layers sit on pieces of the pipeline by `bounds` ([pieces + 1]; which chunk of which stage is which piece: `solver.schedules`);
`options` ([layers]) is the recompute of each layer (see `recompute_kernels`).
"""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled, inlined
from solver.cost.columns import (
    ACTIVATION,
    ALLOCATOR_FACTOR,
    BOUNDARY_BYTES,
    BUCKET_BYTES,
    BUCKET_COUNT,
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    DENSE_PARAMETERS,
    DEVICES_PER_NODE,
    DYNAMIC_ERROR,
    EMBEDDING_PARAMETERS,
    ENCODER_SAVED,
    ENCODER_WORK,
    EXPERT_PARAMETERS,
    EXPERT_SHARD_EXCESS,
    EXPERT_SHARD_RANKS,
    EXPERTS_ALWAYS_SHARDED,
    FROZEN_PARAMETERS,
    GATHER_BYTES,
    GRADIENT_STATE,
    HOST_LIMIT_BYTES,
    HOST_STATE,
    KEPT_GRADIENT_STATE,
    KEPT_OPTIMIZER_STATE,
    KEPT_WEIGHT_STATE,
    LIMIT_BYTES,
    LIVE_GRADIENT_STATE,
    LOGITS_BYTES,
    MESH_DP,
    MTP_KIND,
    MTP_LAYERS,
    NORM_PARAMETERS,
    OPTION_FULL,
    OPTION_NONE,
    OPTION_SELECTIVE,
    PIPELINE_KEEPS_GATHERED,
    POINT_CP,
    POINT_EP,
    POINT_GROUP,
    POINT_TP,
    REPLICATED_RANKS,
    SELECTIVE_REBUILDS,
    SHARD_EXCESS,
    SHARD_RANKS,
    STATIC_ERROR,
    TABLE_PARAMETERS,
    TIED,
    UNPIPED_COPY_STATE,
    WEIGHT_STATE,
    WHOLE_STEP_STATE,
    WORKING_SET_FACTOR,
)
from solver.schedules.dispatch import holds_first, holds_last, in_flight, piece_of

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
    schedule: int,
    point: int,
) -> tuple[float, float, float, float]:
    """(dense, expert, largest layer, tables held) parameters of one rank of a stage."""
    dense = 0.0
    expert = 0.0
    largest = 0.0
    tables = 0.0
    for chunk in range(vpp):
        piece = piece_of(schedule, chunk, stage, stages)
        for layer in range(bounds[piece], bounds[piece + 1]):
            kind = layer_kind[layer]
            one = kinds[point, kind, DENSE_PARAMETERS]
            two = kinds[point, kind, EXPERT_PARAMETERS]
            dense += one
            expert += two
            largest = max(largest, one + two)
    table = points[point, TABLE_PARAMETERS]
    first = holds_first(schedule, stage, stages)
    if first:
        dense += points[point, EMBEDDING_PARAMETERS]
        tables = table
    if holds_last(schedule, stage, stages):
        dense += points[point, NORM_PARAMETERS]
        if scalars[TIED] == 0.0 or not first:
            dense += table
            tables += table
        mtp_layers = int(scalars[MTP_LAYERS])
        if mtp_layers > 0:
            mtp = int(scalars[MTP_KIND])
            dense += mtp_layers * kinds[point, mtp, DENSE_PARAMETERS]
            expert += mtp_layers * kinds[point, mtp, EXPERT_PARAMETERS]
            largest = max(largest, kinds[point, mtp, DENSE_PARAMETERS] + kinds[point, mtp, EXPERT_PARAMETERS])
            if not first and scalars[TIED] == 0.0:
                dense += table
    return dense, expert, largest, tables


@compiled
def state_memory(
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    parameters: tuple[float, float, float, float],
    point: int,
    mesh: int,
    stages: int,
    zero: int,
    offload: float,
    first: bool,
    chain: int,
    stage: int,
    memory: np.ndarray,
) -> None:
    """Write weights, gradients, optimizer, buffers, context and host bytes of one rank (README, "Memory")."""
    dense, expert, largest, tables = parameters
    shard, expert_shard = meshes[mesh, SHARD_RANKS], meshes[mesh, EXPERT_SHARD_RANKS]
    whole = dense + expert
    cut = dense * meshes[mesh, SHARD_EXCESS] / shard + expert * meshes[mesh, EXPERT_SHARD_EXCESS] / expert_shard
    single = shard * meshes[mesh, REPLICATED_RANKS] == 1.0
    memory[chain, stage, WEIGHTS] = scalars[KEPT_WEIGHT_STATE] * (cut if zero >= 3 else whole)
    if first:
        frozen = points[point, FROZEN_PARAMETERS]
        memory[chain, stage, WEIGHTS] += scalars[WEIGHT_STATE] * (frozen / shard if zero >= 3 else frozen)
    memory[chain, stage, GRADIENTS] = scalars[KEPT_GRADIENT_STATE] * (cut * (1.0 - offload) if zero >= 2 else whole)
    kept = cut if zero >= 1 or (single and scalars[EXPERTS_ALWAYS_SHARDED] > 0.0) else whole
    each = scalars[KEPT_OPTIMIZER_STATE] + (0.0 if zero >= 1 or single else scalars[WHOLE_STEP_STATE])
    memory[chain, stage, OPTIMIZER] = each * kept * (1.0 - offload)
    memory[chain, stage, BUFFERS] = points[point, GATHER_BYTES] + sharding_buffers(
        scalars, whole, largest, tables, stages, zero, shard > 1.0
    )
    communicators = 0
    for size in (points[point, POINT_TP], points[point, POINT_CP], meshes[mesh, MESH_DP], float(stages), points[point, POINT_EP]):
        if size > 1.0:
            communicators += 1
    memory[chain, stage, CONTEXT] = scalars[CONTEXT_BYTES] + scalars[COMMUNICATOR_BYTES] * communicators
    group = int(points[point, POINT_GROUP])
    memory[chain, stage, HOST] = offload * kept * scalars[HOST_STATE] * groups[group, DEVICES_PER_NODE]


@inlined
def sharding_buffers(
    scalars: np.ndarray, whole: float, largest: float, tables: float, stages: int, zero: int, shared: bool
) -> float:
    """Bytes of what sharded states need beside them.

    ZeRO 1 and 2: buckets of gradients, and a copy of an engine without pipeline. ZeRO 3: two gathered layers, one layer's
    gradients, the gathered tables and buckets; or the whole stage where it stays gathered between micro-batches.
    """
    bucket = min(scalars[BUCKET_BYTES], scalars[GRADIENT_STATE] * whole)
    held = 0.0
    if zero >= 3 and stages > 1 and scalars[PIPELINE_KEEPS_GATHERED] > 0.0:
        held = (scalars[WEIGHT_STATE] + scalars[GRADIENT_STATE]) * whole
    elif zero >= 3:
        held = (2.0 * scalars[WEIGHT_STATE] + scalars[LIVE_GRADIENT_STATE]) * largest + scalars[WEIGHT_STATE] * tables
        held += scalars[BUCKET_COUNT] * bucket
    elif zero == 2:
        held = max(1.0, scalars[BUCKET_COUNT]) * bucket
    elif zero == 1 and shared:
        held = scalars[BUCKET_COUNT] * bucket
        if stages == 1:
            held += scalars[UNPIPED_COPY_STATE] * whole
    return held


@inlined
def finish_memory(
    groups: np.ndarray,
    points: np.ndarray,
    scalars: np.ndarray,
    point: int,
    chain: int,
    first: bool,
    last: bool,
    stage: int,
    layers: tuple[float, float, bool],
    flight: float,
    memory: np.ndarray,
) -> int:
    """Write the activation columns and the totals; the verdict of the rank. `first`, `last`: it holds the embedding, the head."""
    saved, widest, rebuilt = layers
    kept = points[point, ENCODER_SAVED] if first else 0.0
    memory[chain, stage, ACTIVATIONS] = flight * (saved + points[point, BOUNDARY_BYTES] + kept)
    work = scalars[WORKING_SET_FACTOR] * (widest if rebuilt else 0.5 * widest)
    if first:
        work = max(work, scalars[WORKING_SET_FACTOR] * points[point, ENCODER_WORK])
    logits = points[point, LOGITS_BYTES] if last else 0.0
    memory[chain, stage, WORKSPACE] = work if work >= logits else 0.0
    memory[chain, stage, LOGITS] = logits if logits > work else 0.0
    static = memory[chain, stage, WEIGHTS] + memory[chain, stage, GRADIENTS] + memory[chain, stage, OPTIMIZER]
    dynamic = (memory[chain, stage, ACTIVATIONS] + max(work, logits) + memory[chain, stage, BUFFERS]) * scalars[ALLOCATOR_FACTOR]
    memory[chain, stage, DEVICE] = static + dynamic + memory[chain, stage, CONTEXT]
    error = scalars[STATIC_ERROR] * (static + memory[chain, stage, CONTEXT]) + scalars[DYNAMIC_ERROR] * dynamic
    memory[chain, stage, DEVICE_HIGH] = memory[chain, stage, DEVICE] + error
    group = int(points[point, POINT_GROUP])
    if memory[chain, stage, HOST] > groups[group, HOST_LIMIT_BYTES] or memory[chain, stage, DEVICE] > groups[group, LIMIT_BYTES]:
        return UNFIT
    return SAFE if memory[chain, stage, DEVICE_HIGH] <= groups[group, LIMIT_BYTES] else FITS


@inlined
def layer_memory(
    kinds: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    options: np.ndarray,
    stage: int,
    stages: int,
    vpp: int,
    schedule: int,
    point: int,
) -> tuple[float, float, bool]:
    """(saved bytes, widest layer, whether a layer is rebuilt as a whole) of one micro-batch on a stage."""
    rebuilds = OPTION_SELECTIVE if scalars[SELECTIVE_REBUILDS] > 0.0 else OPTION_FULL
    saved = 0.0
    widest = 0.0
    rebuilt = False
    last_option = OPTION_NONE
    for chunk in range(vpp):
        piece = piece_of(schedule, chunk, stage, stages)
        for layer in range(bounds[piece], bounds[piece + 1]):
            kind = layer_kind[layer]
            last_option = options[layer]
            saved += kinds[point, kind, ACTIVATION + last_option]
            widest = max(widest, kinds[point, kind, ACTIVATION + OPTION_NONE])
            rebuilt = rebuilt or last_option in (OPTION_FULL, rebuilds)
    mtp_layers = int(scalars[MTP_LAYERS])
    if mtp_layers > 0 and holds_last(schedule, stage, stages):
        mtp = int(scalars[MTP_KIND])
        saved += mtp_layers * kinds[point, mtp, ACTIVATION + last_option]
        widest = max(widest, kinds[point, mtp, ACTIVATION + OPTION_NONE])
    return saved, widest, rebuilt


@compiled
def stage_states(
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
    zero: int,
    offload: float,
    stage: int,
    memory: np.ndarray,
) -> None:
    """Fill the columns of `memory[chains, stage]` that do not depend on recompute."""
    for chain in range(point_at.shape[0]):
        point, mesh = point_at[chain, stage], mesh_at[chain, stage]
        parameters = stage_parameters(kinds, points, scalars, layer_kind, bounds, stage, stages, vpp, schedule, point)
        first = holds_first(schedule, stage, stages)
        state_memory(points, meshes, groups, scalars, parameters, point, mesh, stages, zero, offload, first, chain, stage, memory)


@inlined
def copy_states(memory: np.ndarray, stage: int) -> None:
    """Give a stage the columns of the stage before it (see `twin_of_previous`)."""
    for chain in range(memory.shape[0]):
        for column in range(MEMORY_COLUMNS):
            memory[chain, stage, column] = memory[chain, stage - 1, column]


@inlined
def stage_verdict(
    kinds: np.ndarray,
    points: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    point_at: np.ndarray,
    micro_batches: np.ndarray,
    options: np.ndarray,
    stage: int,
    memory: np.ndarray,
) -> int:
    """Fill the other columns of `memory[chains, stage]` for the current options; the least verdict over chains."""
    least = SAFE
    first, last = holds_first(schedule, stage, stages), holds_last(schedule, stage, stages)
    for chain in range(point_at.shape[0]):
        point = point_at[chain, stage]
        layers = layer_memory(kinds, scalars, layer_kind, bounds, options, stage, stages, vpp, schedule, point)
        flight = in_flight(schedule, stage, stages, vpp, micro_batches[chain])
        least = min(least, finish_memory(groups, points, scalars, point, chain, first, last, stage, layers, flight, memory))
    return least
