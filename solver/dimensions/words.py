"""From a layout in classical words to the full layout: devices in group order, axes innermost first tp, cp, dp, pp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from solver.errors import FieldError, InvalidProblem
from solver.frameworks.columns import uniform_row
from solver.frameworks.facts import Facts, read_facts
from solver.frameworks.predicates import balanced_split
from solver.layout import (
    MAX_LAYERS,
    MAX_MICRO_BATCHES,
    ContextParallel,
    DeviceRange,
    GradientSync,
    Layout,
    MeshAxis,
    Module,
    Offload,
    Part,
    Shard,
    ShardPlan,
    Stage,
    Strategy,
    UniformLayout,
)
from solver.problem.problem import Problem

_POLICIES = {"padded": "padded", "packed": "packed_static_cp"}


@dataclass(frozen=True)
class _Sizes:
    words: UniformLayout
    dp: int
    micro_batches: int
    zero: int

    @property
    def replica_devices(self) -> int:
        """Devices of one replica of one stage."""
        return self.words.tp * self.words.cp

    @property
    def stage_devices(self) -> int:
        return self.replica_devices * self.dp


def expand_uniform(problem: Problem, layout: UniformLayout, layers_per_chunk: Sequence[int] | None = None) -> Layout:
    """The layout that the words stand for; `layers_per_chunk` (virtual stages in pipeline order) defaults to a balanced split.

    Raises `InvalidProblem` when the words do not name enough devices; rules of frameworks are checked elsewhere.
    """
    facts = read_facts(problem)
    row = uniform_row(problem, layout, facts)
    if layout.pp * layout.vpp > MAX_LAYERS:
        raise InvalidProblem((FieldError("/vpp", "too_large", f"{layout.pp * layout.vpp} chunks", (f"<= {MAX_LAYERS}",)),))
    if row["micro_batches"] > MAX_MICRO_BATCHES:
        text = f"{row['micro_batches']} micro-batches a replica"
        raise InvalidProblem((FieldError("/gbs", "too_large", text, (f"<= {MAX_MICRO_BATCHES}",)),))
    sizes = _Sizes(layout, row["dp"], row["micro_batches"], row["zero"])
    ranges = _ordered_devices(problem, layout, sizes.stage_devices * layout.pp)
    counts = list(layers_per_chunk or balanced_split(facts.layers, layout.pp * layout.vpp))
    assert len(counts) == layout.pp * layout.vpp
    stages = tuple(
        _stage(facts, sizes, index, _take(ranges, sizes, index), _chunks(counts, index, layout.pp)) for index in range(layout.pp)
    )
    return Layout(
        modules=(Module(stages=stages),),
        schedule=layout.schedule,
        mbs=layout.mbs,
        vpp=layout.vpp,
        sequence_policy=_POLICIES[problem.workload.batching[0]],
        gradient_sync=GradientSync(kind="reduce_scatter" if sizes.zero else "all_reduce", overlap=True),
        idle_devices=_idle(problem, stages),
    )


def _ordered_devices(problem: Problem, layout: UniformLayout, wanted: int) -> list[DeviceRange]:
    groups = {group.name: group.nodes * group.devices_per_node for group in problem.cluster.groups}
    names = tuple(dict.fromkeys(layout.groups or groups))
    for index, name in enumerate(names):
        if name not in groups:
            raise InvalidProblem((FieldError(f"/groups/{index}", "unknown_name", f"there is no group {name!r}", tuple(groups)),))
    available = sum(groups[name] for name in names)
    if wanted > available:
        text = f"tp x cp x dp x pp is {wanted}, the groups have {available} devices"
        raise InvalidProblem((FieldError("/dp", "out_of_range", text, (f"<= {available}",)),))
    return [DeviceRange(group=name, first=0, count=groups[name]) for name in names]


def _take(ranges: Sequence[DeviceRange], sizes: _Sizes, index: int) -> list[DeviceRange]:
    """Devices of one stage: the next ones in group order, one range per group."""
    start, stop, offset = index * sizes.stage_devices, (index + 1) * sizes.stage_devices, 0
    taken = []
    for entry in ranges:
        first, last = max(start, offset), min(stop, offset + entry.count)
        if first < last:
            taken.append(DeviceRange(group=entry.group, first=first - offset, count=last - first))
        offset += entry.count
    return taken


def _chunks(counts: Sequence[int], index: int, pp: int) -> tuple[tuple[int, int], ...]:
    starts = list(accumulate(counts, initial=0))
    return tuple((starts[number], starts[number] + counts[number] - 1) for number in range(index, len(counts), pp))


def _stage(facts: Facts, sizes: _Sizes, index: int, devices: list[DeviceRange], chunks: tuple[tuple[int, int], ...]) -> Stage:
    parts, rank = [], index * sizes.stage_devices
    for entry in devices:
        parts.append(_part(facts, sizes, entry, rank))
        rank += entry.count
    last = index == sizes.words.pp - 1
    named = (
        ("embedding", index == 0 and facts.vocab_size > 0),
        ("mtp", last and facts.mtp_layers > 0),
        ("head", last and facts.vocab_size > 0),
    )
    holds = tuple(name for name, held in named if held)
    return Stage.model_validate({"chunks": chunks, "holds": holds, "parts": parts, "strategy": _strategy(sizes)})


def _part(facts: Facts, sizes: _Sizes, devices: DeviceRange, rank: int) -> Part:
    words = sizes.words
    if devices.count % sizes.replica_devices:
        text = f"a replica of {sizes.replica_devices} devices would span groups: a stage has {devices.count} of {devices.group!r}"
        raise InvalidProblem((FieldError("/groups", "conflict", text, None),))
    dp = devices.count // sizes.replica_devices
    experts = words.etp * words.ep
    mesh = (("tp", words.tp), ("cp", words.cp), ("dp", dp))
    expert_mesh = (("etp", words.etp), ("ep", words.ep), ("edp", devices.count // experts)) if facts.moe else ()
    return Part(
        devices=(devices,),
        ranks=((rank, rank + devices.count - 1),),
        mesh=_mesh(mesh),
        expert_mesh=_mesh(expert_mesh),
        share=dp / sizes.dp,
        micro_batches=max(1, sizes.micro_batches),
    )


def _mesh(axes: Sequence[tuple[str, int]]) -> tuple[MeshAxis, ...]:
    """Axes of size 1 are left out."""
    found, stride = [], 1
    for axis, size in axes:
        if size > 1:
            found.append(MeshAxis.model_validate({"axis": axis, "size": size, "stride": stride}))
        stride *= size
    return tuple(found)


def shard_plan(zero: int, ranks: int) -> ShardPlan:
    """ZeRO stage over all data (x context) parallel ranks of a stage: optimizer from 1 on, gradients from 2, parameters at 3."""
    whole, cut = Shard(replicate=ranks, shard=1), Shard(replicate=1, shard=ranks)
    return ShardPlan(
        parameters=cut if zero >= 3 else whole,
        gradients=cut if zero >= 2 else whole,
        optimizer=cut if zero >= 1 else whole,
    )


def _strategy(sizes: _Sizes) -> Strategy:
    words = sizes.words
    return Strategy(
        sequence_parallel=words.sequence_parallel,
        shard=shard_plan(sizes.zero, sizes.dp * words.cp),
        recompute=words.recompute,
        offload=Offload(optimizer=words.offload_optimizer),
        context_parallel=ContextParallel(kind=words.cp_kind) if words.cp > 1 else None,
    )


def _idle(problem: Problem, stages: Sequence[Stage]) -> tuple[DeviceRange, ...]:
    """What no part uses, as ranges."""
    idle = []
    for group in problem.cluster.groups:
        used = sorted((e.first, e.first + e.count) for s in stages for p in s.parts for e in p.devices if e.group == group.name)
        free = 0
        for first, end in [*used, (group.nodes * group.devices_per_node, 0)]:
            if first > free:
                idle.append(DeviceRange(group=group.name, first=free, count=first - free))
            free = max(free, end)
    return tuple(idle)
