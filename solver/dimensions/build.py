"""A layout in classical words, written out: stages, parts, ranks, meshes and shard groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from solver.dimensions.ranks import RankMap, dense_mesh, expert_mesh
from solver.layout import (
    ContextParallel,
    DeviceRange,
    GradientSync,
    Layout,
    Module,
    Offload,
    Override,
    Part,
    Recompute,
    Schedule,
    ScheduleKind,
    Shard,
    ShardPlan,
    Stage,
    Strategy,
)


@dataclass(frozen=True, slots=True)
class PartShape:
    """One part of one stage: equal replicas on consecutive devices of the group at position `group` of the rank map."""

    group: int
    first_device: int
    tp: int
    cp: int
    dp: int
    ep: int
    etp: int
    micro_batches: int

    @property
    def size(self) -> int:
        """Devices of the part."""
        return self.tp * self.cp * self.dp


@dataclass(frozen=True, slots=True, eq=False)
class LayoutShape:
    """All that a layout needs besides the problem: `parts[stage]`, `bounds` of the pieces, one `recompute` per layer."""

    ranks: RankMap
    parts: tuple[tuple[PartShape, ...], ...]
    bounds: np.ndarray
    recompute: tuple[Recompute, ...]
    schedule: ScheduleKind
    vpp: int
    mbs: int
    zero: int
    replicate: int
    sequence_parallel: bool
    cp_kind: str
    offload_optimizer: float
    sequence_policy: str
    vocabulary: bool
    mtp: bool
    experts: bool
    overlap: bool
    module: str = "model"
    stage_replicate: tuple[int, ...] = ()
    """copies of a shard group per stage where stages differ; empty: `replicate` on all"""


def build_layout(shape: LayoutShape) -> Layout:
    """The layout document of a shape."""
    starts = _launch_ranks(shape)
    stages = tuple(_stage(shape, index, starts[index]) for index in range(len(shape.parts)))
    return Layout(
        modules=(Module(module=shape.module, stages=stages),),
        schedule=Schedule(kind=shape.schedule),
        mbs=shape.mbs,
        vpp=shape.vpp,
        sequence_policy=shape.sequence_policy,
        gradient_sync=GradientSync(kind="all_reduce" if shape.zero == 0 else "reduce_scatter", overlap=shape.overlap),
        idle_devices=_idle(shape),
    )


def _launch_ranks(shape: LayoutShape) -> list[list[int]]:
    """First launch rank of every part: stages outermost, parts in order, without gaps for idle devices."""
    starts: list[list[int]] = []
    rank = 0
    for parts in shape.parts:
        starts.append([])
        for part in parts:
            starts[-1].append(rank)
            rank += part.size
    return starts


def _stage(shape: LayoutShape, index: int, first_ranks: list[int]) -> Stage:
    stages = len(shape.parts)
    schedule = Schedule(kind=shape.schedule)
    pieces = [schedule.piece(chunk, index, stages) for chunk in range(shape.vpp)]
    chunks = tuple((int(shape.bounds[k]), int(shape.bounds[k + 1]) - 1) for k in pieces)
    layers = [layer for first, last in chunks for layer in range(first, last + 1)]
    common = _commonest([shape.recompute[layer] for layer in layers])
    first, last = 0 in pieces, schedule.pieces(stages, shape.vpp) - 1 in pieces
    named = (("embedding", first and shape.vocabulary), ("head", last and shape.vocabulary), ("mtp", last and shape.mtp))
    holds = tuple(name for name, held in named if held)
    entries = shape.parts[index]
    rows = sum(part.dp * part.micro_batches for part in entries)
    return Stage(
        chunks=chunks,
        holds=holds,
        parts=tuple(_part(shape, part, rows, first) for part, first in zip(entries, first_ranks, strict=True)),
        strategy=_strategy(shape, index, common),
        overrides=_overrides(shape, layers, common),
    )


def _part(shape: LayoutShape, part: PartShape, rows: int, first_rank: int) -> Part:
    size = part.size
    edp = size // (part.etp * part.ep)
    return Part(
        devices=(DeviceRange(group=shape.ranks.groups[part.group], first=part.first_device, count=size),),
        ranks=((first_rank, first_rank + size - 1),),
        mesh=dense_mesh(part.tp, part.cp, part.dp),
        expert_mesh=expert_mesh(part.etp, part.ep, edp) if shape.experts else (),
        share=part.dp * part.micro_batches / rows,
        micro_batches=part.micro_batches,
    )


def _strategy(shape: LayoutShape, stage: int, recompute: Recompute) -> Strategy:
    parts = shape.parts[stage]
    ranks = sum(part.cp * part.dp for part in parts)
    copies = shape.stage_replicate[stage] if shape.stage_replicate else shape.replicate
    whole = Shard(replicate=ranks, shard=1)
    cut = Shard(replicate=copies, shard=ranks // copies)
    plan = ShardPlan(
        parameters=cut if shape.zero >= 3 else whole,
        gradients=cut if shape.zero >= 2 else whole,
        optimizer=cut if shape.zero >= 1 else whole,
    )
    return Strategy(
        sequence_parallel=shape.sequence_parallel and max(part.tp for part in parts) > 1,
        shard=plan,
        reshard_after_forward=True if shape.zero >= 3 else None,
        recompute=recompute,
        offload=Offload(optimizer=shape.offload_optimizer),
        context_parallel=ContextParallel(kind=shape.cp_kind) if parts[0].cp > 1 else None,
    )


def _commonest(values: list[Recompute]) -> Recompute:
    if not values:
        return Recompute(kind="none")
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value == values[-1]))


def _overrides(shape: LayoutShape, layers: list[int], common: Recompute) -> tuple[Override, ...]:
    """Runs of layers that differ from the stage's own recompute."""
    overrides: list[Override] = []
    for layer in layers:
        recompute = shape.recompute[layer]
        if recompute == common:
            continue
        last = overrides[-1] if overrides else None
        if last is not None and last.recompute == recompute and last.layers[1] == layer - 1:
            overrides[-1] = Override(layers=(last.layers[0], layer), recompute=recompute)
        else:
            overrides.append(Override(layers=(layer, layer), recompute=recompute))
    return tuple(overrides)


def _idle(shape: LayoutShape) -> tuple[DeviceRange, ...]:
    """Devices that no part uses."""
    idle: list[DeviceRange] = []
    for position, (name, size) in enumerate(zip(shape.ranks.groups, shape.ranks.sizes, strict=True)):
        used = [
            (part.first_device, part.first_device + part.size)
            for parts in shape.parts
            for part in parts
            if part.group == position
        ]
        free = 0
        for first, after in [*sorted(used), (size, size)]:
            if first > free:
                idle.append(DeviceRange(group=name, first=free, count=first - free))
            free = max(free, after)
    return tuple(idle)
