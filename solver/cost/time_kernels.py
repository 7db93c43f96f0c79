"""Compiled seconds of every operation of one layout from the cost tables (arguments as in `memory_kernels`)."""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled, inlined
from solver.cost.columns import (
    BACKWARD_BASE,
    BACKWARD_SLOPE,
    BOUNDARY_BYTES,
    DENSE_PARAMETERS,
    EMBEDDING_BACKWARD,
    EMBEDDING_FORWARD,
    ENCODER_PARAMETERS,
    EXPERT_PARAMETERS,
    EXPERT_SHARD_LATENCY,
    EXPERT_SHARD_RANKS,
    EXPERT_SHARD_SLOPE,
    FORWARD_BASE,
    FORWARD_SLOPE,
    GRADIENT_STATE,
    HEAD_BACKWARD,
    HEAD_FORWARD,
    HEAD_WEIGHT,
    LEAST_WORK,
    MTP_KIND,
    MTP_LAYERS,
    OPTION_NONE,
    OVERLAP_SLOWDOWN,
    PEER_EXPOSED,
    PEER_FIXED,
    PEER_LATENCY,
    PEER_SLOPE,
    PIPELINE_KEEPS_GATHERED,
    POINT_GROUP,
    POINT_MBS,
    RECOMPUTE_BASE,
    RECOMPUTE_SLOPE,
    SHARD_LATENCY,
    SHARD_LOAD,
    SHARD_OVERLAP,
    SHARD_RANKS,
    SHARD_SLOPE,
    TABLE_PARAMETERS,
    WEIGHT_BASE,
    WEIGHT_STATE,
)
from solver.cost.twin_kernels import same_layers, same_options
from solver.schedules.dispatch import piece_of, pieces_of


@compiled
def hidden_by(comm_s: float, compute_s: float, overlap: float, slowdown: float) -> float:
    """Seconds that overlapped communication adds to computing (time prototype 1.2, FSDP): contention and what stays exposed."""
    least = min(comm_s, compute_s)
    return max(compute_s + slowdown * least, comm_s) + (1.0 - overlap) * least - compute_s


@compiled
def shard_seconds(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    scalars: np.ndarray,
    point: int,
    mesh: int,
    kind: int,
    zero: int,
    out: np.ndarray,
) -> None:
    """Write [forward, backward] seconds that gathering parameters and scattering gradients per micro-batch adds to one layer."""
    out[0] = 0.0
    out[1] = 0.0
    if zero < 2 or (meshes[mesh, SHARD_RANKS] <= 1.0 and meshes[mesh, EXPERT_SHARD_RANKS] <= 1.0):
        return
    dense, expert = kinds[point, kind, DENSE_PARAMETERS], kinds[point, kind, EXPERT_PARAMETERS]
    latency = meshes[mesh, SHARD_LATENCY] + (meshes[mesh, EXPERT_SHARD_LATENCY] if expert > 0.0 else 0.0)
    slope = meshes[mesh, SHARD_SLOPE] * dense + meshes[mesh, EXPERT_SHARD_SLOPE] * expert
    work = scalars[LEAST_WORK] * points[point, POINT_MBS]
    forward = kinds[point, kind, FORWARD_BASE] + kinds[point, kind, FORWARD_SLOPE] * work
    backward = kinds[point, kind, BACKWARD_BASE] + kinds[point, kind, BACKWARD_SLOPE] * work
    scatter = latency + slope * scalars[GRADIENT_STATE]
    gather = latency + slope * scalars[WEIGHT_STATE]
    slowdown = scalars[OVERLAP_SLOWDOWN] * meshes[mesh, SHARD_LOAD]
    if zero >= 3:
        out[0] = hidden_by(gather, forward, scalars[SHARD_OVERLAP], slowdown)
        out[1] = hidden_by(gather + scatter, backward, scalars[SHARD_OVERLAP], slowdown)
    else:
        out[1] = hidden_by(scatter, backward, scalars[SHARD_OVERLAP], slowdown)


@inlined
def traffic_level(scalars: np.ndarray, stages: int, zero: int) -> int:
    """ZeRO level by traffic: a pipeline that keeps gathered parameters through the step gathers and reduces once, as level 1."""
    return 1 if zero >= 3 and stages > 1 and scalars[PIPELINE_KEEPS_GATHERED] > 0.0 else zero


@compiled
def table_shard_seconds(
    points: np.ndarray, meshes: np.ndarray, scalars: np.ndarray, point: int, mesh: int, zero: int, first: bool
) -> float:
    """Seconds one direction of the embedding (`first`, with the modules before it) or head pays for gathering under ZeRO-3."""
    if zero < 3 or meshes[mesh, SHARD_RANKS] <= 1.0:
        return 0.0
    moved = (points[point, TABLE_PARAMETERS] + (points[point, ENCODER_PARAMETERS] if first else 0.0)) * scalars[WEIGHT_STATE]
    return float((meshes[mesh, SHARD_LATENCY] + meshes[mesh, SHARD_SLOPE] * moved) * (1.0 - scalars[SHARD_OVERLAP]))


@compiled
def peer_seconds(
    points: np.ndarray,
    meshes: np.ndarray,
    scalars: np.ndarray,
    peers: np.ndarray,
    stages: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    chain: int,
    stage: int,
) -> float:
    """Exposed seconds of one pipeline message on a stage: the slower of its two neighbours' links."""
    if stages == 1:
        return 0.0
    point = point_at[chain, stage]
    mesh = mesh_at[chain, stage]
    own = int(points[point, POINT_GROUP])
    moved = points[point, BOUNDARY_BYTES]
    slowest = 0.0
    for neighbour in (stage - 1, stage + 1):
        if neighbour < 0 or neighbour >= stages:
            continue
        other = point_at[chain, neighbour]
        group = int(points[other, POINT_GROUP])
        if group == own:
            seconds = meshes[mesh, PEER_LATENCY] + meshes[mesh, PEER_SLOPE] * moved
        else:
            seconds = peers[own, group, 0] + peers[own, group, 1] * max(moved, points[other, BOUNDARY_BYTES])
        slowest = max(slowest, seconds)
    return float(scalars[PEER_EXPOSED] * slowest + scalars[PEER_FIXED])


@compiled
def messages(
    points: np.ndarray,
    meshes: np.ndarray,
    scalars: np.ndarray,
    peers: np.ndarray,
    stages: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    chain: int,
    peer_s: np.ndarray,
) -> None:
    """Write `peer_seconds` of every stage; a stage between neighbours like itself repeats the one before it."""
    alike = 0
    for stage in range(stages):
        same = (
            stage > 0
            and point_at[chain, stage] == point_at[chain, stage - 1]
            and mesh_at[chain, stage] == mesh_at[chain, stage - 1]
        )
        alike = alike + 1 if same else 0
        if alike >= 2 and stage < stages - 1 and point_at[chain, stage + 1] == point_at[chain, stage]:
            peer_s[stage] = peer_s[stage - 1]
        else:
            peer_s[stage] = peer_seconds(points, meshes, scalars, peers, stages, point_at, mesh_at, chain, stage)


@compiled
def operation_seconds(
    kinds: np.ndarray,
    points: np.ndarray,
    meshes: np.ndarray,
    scalars: np.ndarray,
    peers: np.ndarray,
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    zero: int,
    options: np.ndarray,
    forward: np.ndarray,
    backward: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Write base and slope seconds of every slot: `forward`, `backward`: [chains, stages * vpp, 2], and in `weight`
    [chains, stages * vpp] the base seconds of the backward that only make weight gradients (they have no attention work).
    """
    sharding = np.empty(2)
    peer_s = np.empty(stages)
    times = np.empty(5)
    last_piece = pieces_of(schedule, stages, vpp) - 1
    level = traffic_level(scalars, stages, zero)
    for chain in range(point_at.shape[0]):
        messages(points, meshes, scalars, peers, stages, point_at, mesh_at, chain, peer_s)
        stage = stages - 1
        piece = -1
        for slot in range(stages * vpp):
            before, piece_before = stage, piece
            stage = 0 if before == stages - 1 else before + 1
            piece = piece_of(schedule, slot // stages, stage, stages)
            point = point_at[chain, stage]
            mesh = mesh_at[chain, stage]
            if (
                0 < piece < last_piece
                and 0 < piece_before < last_piece
                and point == point_at[chain, before]
                and mesh == mesh_at[chain, before]
                and peer_s[stage] == peer_s[before]
                and same_layers(layer_kind, bounds, piece, piece_before)
                and same_options(bounds, options, piece, piece_before)
            ):
                for column in range(2):
                    forward[chain, slot, column] = forward[chain, slot - 1, column]
                    backward[chain, slot, column] = backward[chain, slot - 1, column]
                weight[chain, slot] = weight[chain, slot - 1]
                continue
            times[0] = peer_s[stage]
            times[1] = 0.0
            times[2] = peer_s[stage]
            times[3] = 0.0
            times[4] = 0.0
            kind = -1
            for layer in range(bounds[piece], bounds[piece + 1]):
                if layer_kind[layer] != kind:
                    kind = layer_kind[layer]
                    shard_seconds(kinds, points, meshes, scalars, point, mesh, kind, level, sharding)
                add_layer(kinds, point, kind, options[layer], 1.0, sharding, times)
            if piece == 0:
                table = table_shard_seconds(points, meshes, scalars, point, mesh, level, True)
                times[0] += points[point, EMBEDDING_FORWARD] + table
                times[2] += points[point, EMBEDDING_BACKWARD] + table
                times[4] += points[point, EMBEDDING_BACKWARD]  # nothing comes before the embedding
            if piece == last_piece:
                table = table_shard_seconds(points, meshes, scalars, point, mesh, level, False)
                times[0] += points[point, HEAD_FORWARD] + table
                times[2] += points[point, HEAD_BACKWARD] + table
                times[4] += points[point, HEAD_WEIGHT]
                if scalars[MTP_LAYERS] > 0.0:
                    mtp = int(scalars[MTP_KIND])
                    option = last_option(bounds, options, stages, vpp, schedule, stage)
                    shard_seconds(kinds, points, meshes, scalars, point, mesh, mtp, level, sharding)
                    add_layer(kinds, point, mtp, option, scalars[MTP_LAYERS], sharding, times)
            forward[chain, slot, 0] = times[0]
            forward[chain, slot, 1] = times[1]
            backward[chain, slot, 0] = times[2]
            backward[chain, slot, 1] = times[3]
            weight[chain, slot] = times[4]


@compiled
def last_option(bounds: np.ndarray, options: np.ndarray, stages: int, vpp: int, schedule: int, stage: int) -> int:
    """Recompute option of the last layer on a stage; none without a layer there."""
    for chunk in range(vpp - 1, -1, -1):
        piece = piece_of(schedule, chunk, stage, stages)
        if bounds[piece + 1] > bounds[piece]:
            return int(options[bounds[piece + 1] - 1])
    return OPTION_NONE


@compiled
def add_layer(
    kinds: np.ndarray, point: int, kind: int, option: int, times_of_it: float, sharding: np.ndarray, times: np.ndarray
) -> None:
    """Add `times_of_it` layers of a kind to [forward base, forward slope, backward base, backward slope, weight gradients]."""
    times[0] += times_of_it * (kinds[point, kind, FORWARD_BASE] + sharding[0])
    times[1] += times_of_it * kinds[point, kind, FORWARD_SLOPE]
    times[2] += times_of_it * (kinds[point, kind, BACKWARD_BASE] + kinds[point, kind, RECOMPUTE_BASE + option] + sharding[1])
    times[3] += times_of_it * (kinds[point, kind, BACKWARD_SLOPE] + kinds[point, kind, RECOMPUTE_SLOPE + option])
    times[4] += times_of_it * kinds[point, kind, WEIGHT_BASE]
