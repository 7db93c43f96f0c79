"""Compiled seconds after the last backward: gradient and parameter traffic, optimizer (arguments as in `memory_kernels`)."""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled, inlined
from solver.cost.columns import (
    EXPERT_REPLICA_LATENCY,
    EXPERT_REPLICA_SLOPE,
    EXPERT_REPLICATED_RANKS,
    EXPERT_SHARD_LATENCY,
    EXPERT_SHARD_RANKS,
    EXPERT_SHARD_SLOPE,
    GATHER_OVERLAP,
    GRADIENT_OVERLAP,
    GRADIENT_STATE,
    HOST_UPDATE_BYTES_PER_S,
    MEAN_WORK,
    MTP_KIND,
    MTP_LAYERS,
    OFFLOAD_EFFICIENCY,
    OFFLOAD_OVERLAP,
    OPTIMIZER_EFFICIENCY,
    OPTIMIZER_STATE,
    PCIE_BYTES_PER_S,
    PEER_LATENCY,
    PEER_SLOPE,
    POINT_GROUP,
    POINT_MBS,
    RECOMPUTE_BASE,
    RECOMPUTE_SLOPE,
    REPLICA_LATENCY,
    REPLICA_SLOPE,
    REPLICATED_RANKS,
    SHARD_LATENCY,
    SHARD_OVERLAP,
    SHARD_RANKS,
    SHARD_SLOPE,
    STREAM_BYTES_PER_S,
    SYNC_FIXED,
    TABLE_PARAMETERS,
    TIED,
    WEIGHT_STATE,
)
from solver.cost.memory_kernels import stage_parameters
from solver.cost.time_kernels import traffic_level
from solver.cost.twin_kernels import twin_of_previous
from solver.schedules.dispatch import DUALPIPE, holds_first, holds_last, piece_of


@compiled
def step_ends(
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
    micro_batches: np.ndarray,
    forward: np.ndarray,
    backward: np.ndarray,
    sync: np.ndarray,
    update: np.ndarray,
) -> None:
    """Write seconds of gradient and parameter traffic, `sync` [chains, stages, exposed | hidden], and of the update, `update`."""
    for stage in range(stages):
        twin = twin_of_previous(layer_kind, bounds, stages, vpp, schedule, point_at, mesh_at, stage)
        for chain in range(point_at.shape[0]):
            if twin and same_seconds(forward, backward, stages, vpp, chain, stage):
                sync[chain, stage, 0] = sync[chain, stage - 1, 0]
                sync[chain, stage, 1] = sync[chain, stage - 1, 1]
                update[chain, stage] = update[chain, stage - 1]
                continue
            stage_end(
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
                micro_batches,
                forward,
                backward,
                chain,
                stage,
                0.0,
                sync,
                update,
            )


@inlined
def same_seconds(forward: np.ndarray, backward: np.ndarray, stages: int, vpp: int, chain: int, stage: int) -> bool:
    """Whether every operation of a stage takes as long as that of the stage before it."""
    for chunk in range(vpp):
        slot = chunk * stages + stage
        for column in range(2):
            if (
                forward[chain, slot, column] != forward[chain, slot - 1, column]
                or backward[chain, slot, column] != backward[chain, slot - 1, column]
            ):
                return False
    return True


@compiled
def first_stage_ends(
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
    micro_batches: np.ndarray,
    low: int,
    high: int,
    forward: np.ndarray,
    backward: np.ndarray,
    sync: np.ndarray,
    update: np.ndarray,
) -> None:
    """As `step_ends` for the first stage alone, least over all mixtures of `low` and `high`: `backward` is that of `low`, traffic
    hides behind that of `high`.
    """
    first = int(np.int64(0))  # not a literal: `stage_end` is compiled once for any stage
    for chain in range(point_at.shape[0]):
        more = more_recompute_seconds(
            kinds, points, scalars, layer_kind, bounds, stages, vpp, schedule, point_at[chain, 0], low, high
        )
        stage_end(
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
            micro_batches,
            forward,
            backward,
            chain,
            first,
            more,
            sync,
            update,
        )


@compiled
def more_recompute_seconds(
    kinds: np.ndarray,
    points: np.ndarray,
    scalars: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    point: int,
    low: int,
    high: int,
) -> float:
    """Seconds that `high` adds to a mean micro-batch's backward on the first stage when every layer has it instead of `low`."""
    if low == high:
        return 0.0
    work = scalars[MEAN_WORK] * points[point, POINT_MBS]
    more = 0.0
    for chunk in range(vpp):
        piece = piece_of(schedule, chunk, 0, stages)
        for layer in range(bounds[piece], bounds[piece + 1]):
            entry = kinds[point, layer_kind[layer]]
            more += entry[RECOMPUTE_BASE + high] - entry[RECOMPUTE_BASE + low]
            more += (entry[RECOMPUTE_SLOPE + high] - entry[RECOMPUTE_SLOPE + low]) * work
    if scalars[MTP_LAYERS] > 0.0 and holds_last(schedule, 0, stages):
        entry = kinds[point, int(scalars[MTP_KIND])]
        once = entry[RECOMPUTE_BASE + high] - entry[RECOMPUTE_BASE + low]
        once += (entry[RECOMPUTE_SLOPE + high] - entry[RECOMPUTE_SLOPE + low]) * work
        more += scalars[MTP_LAYERS] * once
    return max(0.0, float(more))


@compiled
def stage_end(
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
    micro_batches: np.ndarray,
    forward: np.ndarray,
    backward: np.ndarray,
    chain: int,
    stage: int,
    more_backward_s: float,
    sync: np.ndarray,
    update: np.ndarray,
) -> None:
    """Write [exposed, hidden] synchronisation seconds of one stage, and its optimizer seconds."""
    point = point_at[chain, stage]
    mesh = mesh_at[chain, stage]
    parameters = stage_parameters(kinds, points, scalars, layer_kind, bounds, stage, stages, vpp, schedule, point)
    work = scalars[MEAN_WORK] * points[point, POINT_MBS]
    forward_s = 0.0
    backward_s = more_backward_s
    for chunk in range(vpp):
        slot = chunk * stages + stage
        forward_s += forward[chain, slot, 0] + forward[chain, slot, 1] * work
        backward_s += backward[chain, slot, 0] + backward[chain, slot, 1] * work
    exposed, hidden = sync_seconds(
        points, meshes, scalars, parameters, point, mesh, stage, stages, schedule, zero, forward_s, backward_s
    )
    sync[chain, stage, 0] = exposed
    sync[chain, stage, 1] = hidden
    update[chain, stage] = update_seconds(
        points, meshes, groups, scalars, parameters, point, mesh, zero, offload, micro_batches[chain]
    )


@compiled
def sync_seconds(
    points: np.ndarray,
    meshes: np.ndarray,
    scalars: np.ndarray,
    parameters: tuple[float, float, float, float],
    point: int,
    mesh: int,
    stage: int,
    stages: int,
    schedule: int,
    zero: int,
    forward_s: float,
    backward_s: float,
) -> tuple[float, float]:
    """(exposed, hidden) seconds: gradients are reduced behind the last backward, parameters gathered behind the next forward."""
    dense, expert = parameters[0], parameters[1]
    shard, expert_shard = meshes[mesh, SHARD_RANKS], meshes[mesh, EXPERT_SHARD_RANKS]
    per_byte = meshes[mesh, SHARD_SLOPE] * dense + meshes[mesh, EXPERT_SHARD_SLOPE] * expert
    latency = (meshes[mesh, SHARD_LATENCY] if shard > 1.0 else 0.0) + (
        meshes[mesh, EXPERT_SHARD_LATENCY] if expert > 0.0 and expert_shard > 1.0 else 0.0
    )
    scatter = latency + per_byte * scalars[GRADIENT_STATE]
    gather = latency + per_byte * scalars[WEIGHT_STATE]
    level = traffic_level(scalars, stages, zero)
    reduced = 0.0
    if level == 0:
        reduced = 2.0 * scatter
    elif level == 1:
        reduced = scatter
    if meshes[mesh, REPLICATED_RANKS] > 1.0:
        moved = dense / shard * scalars[GRADIENT_STATE]
        reduced += 2.0 * (meshes[mesh, REPLICA_LATENCY] + meshes[mesh, REPLICA_SLOPE] * moved)
    if meshes[mesh, EXPERT_REPLICATED_RANKS] > 1.0 and expert > 0.0:
        moved = expert / expert_shard * scalars[GRADIENT_STATE]
        reduced += 2.0 * (meshes[mesh, EXPERT_REPLICA_LATENCY] + meshes[mesh, EXPERT_REPLICA_SLOPE] * moved)
    gathered = gather if level == 1 or level == 2 else 0.0
    shard_overlap = scalars[SHARD_OVERLAP] if zero >= 3 else 0.0
    exposed = max(0.0, reduced - max(scalars[GRADIENT_OVERLAP], shard_overlap) * backward_s)
    exposed += max(0.0, gathered - max(scalars[GATHER_OVERLAP], shard_overlap) * forward_s)
    hidden = reduced + gathered - exposed
    exposed += meshes[mesh, SYNC_FIXED]
    if schedule == DUALPIPE:  # the two copies of every layer add up what is left of their gradients
        moved = dense + expert if zero == 0 else dense / shard + expert / expert_shard
        exposed += meshes[mesh, PEER_LATENCY] + meshes[mesh, PEER_SLOPE] * moved * scalars[GRADIENT_STATE]
    if scalars[TIED] > 0.0 and holds_first(schedule, stage, stages) != holds_last(schedule, stage, stages):
        moved = points[point, TABLE_PARAMETERS] * scalars[GRADIENT_STATE]
        exposed += meshes[mesh, PEER_LATENCY] + meshes[mesh, PEER_SLOPE] * moved
    return exposed, hidden


@compiled
def update_seconds(
    points: np.ndarray,
    meshes: np.ndarray,
    groups: np.ndarray,
    scalars: np.ndarray,
    parameters: tuple[float, float, float, float],
    point: int,
    mesh: int,
    zero: int,
    offload: float,
    micro_batches: int,
) -> float:
    """Optimizer step: read and write of the states; the offloaded part crosses PCIe and is updated from host memory.

    Gradients cross once a step. Sharded ones (ZeRO 2 and 3) do not wait on the device: they cross, and are added up in host
    memory, after every micro-batch.
    """
    held = parameters[0] + parameters[1]
    if zero >= 1:
        held = parameters[0] / meshes[mesh, SHARD_RANKS] + parameters[1] / meshes[mesh, EXPERT_SHARD_RANKS]
    touched = 2.0 * scalars[OPTIMIZER_STATE] + scalars[GRADIENT_STATE] + scalars[WEIGHT_STATE]
    seconds = held * (1.0 - offload) * touched / (points[point, STREAM_BYTES_PER_S] * scalars[OPTIMIZER_EFFICIENCY])
    if offload > 0.0:
        group = int(points[point, POINT_GROUP])
        crossings = float(micro_batches) if zero >= 2 else 1.0
        moved = held * offload * (crossings * scalars[GRADIENT_STATE] + scalars[WEIGHT_STATE])
        crossing = moved / (groups[group, PCIE_BYTES_PER_S] * scalars[OFFLOAD_EFFICIENCY])
        added = 3.0 * scalars[GRADIENT_STATE] * (crossings - 1.0)
        updating = held * offload * (2.0 * scalars[OPTIMIZER_STATE] + 4.0 + added) / scalars[HOST_UPDATE_BYTES_PER_S]
        seconds += (crossing + updating) * (1.0 - scalars[OFFLOAD_OVERLAP])
    return float(seconds)
