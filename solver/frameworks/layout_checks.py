"""Arithmetic a layout obeys in every framework: layers once, devices once, meshes and shares that add up.

Rules here concern relations between stages and parts, which columns of one part cannot show.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from solver.frameworks.facts import Facts
from solver.layout import DeviceRange, Layout, MeshAxis, Part, Range, Shard, Stage
from solver.plan import Violation
from solver.problem.problem import Problem

_SHARE_TOLERANCE = 1e-6
_MESH_AXES = ("tp", "cp", "dp")
_EXPERT_AXES = ("etp", "ep", "edp")


def layout_violations(problem: Problem, layout: Layout, facts: Facts) -> Iterator[Violation]:
    """L01 alone when the layers are wrong (the rest counts layers), else all that is broken."""
    wrong_layers = [*_module(problem, layout), *_layers(layout, facts)]
    if wrong_layers:
        yield from wrong_layers
        return
    yield from _holders(layout, facts)
    yield from _schedule(layout)
    yield from _devices(problem, layout)
    yield from _ranks(layout)
    for index, stage in enumerate(layout.stages):
        yield from _shares(layout, index, stage)
        yield from _shards(index, stage)
        yield from _overrides(index, stage)
        for number, part in enumerate(stage.parts):
            yield from _mesh(index, number, part)


def _broken(rule: str, message: str, nearest: dict[str, Any] | None = None, **values: Any) -> Violation:
    return Violation(rule=rule, severity="refused", message=message, values=values, nearest=nearest or {})


def _module(problem: Problem, layout: Layout) -> Iterator[Violation]:
    """L01: the layers are those of the module that is planned; modules before it run on its first stage."""
    name, planned = layout.modules[0].module, problem.planned_module
    if name != planned:
        text = f"the layout is of module {name[:80]!r}, the module that is planned is {planned[:80]!r}"
        yield _broken("L01", text, {"module": planned}, module=name)


def _layers(layout: Layout, facts: Facts) -> Iterator[Violation]:
    """L01: virtual stages in pipeline order hold layers 0 ... L - 1, each once."""
    for index, stage in enumerate(layout.stages):
        if len(stage.chunks) != layout.vpp:
            text = f"stage {index} has {len(stage.chunks)} chunks, vpp is {layout.vpp}"
            yield _broken("L01", text, {"chunks": layout.vpp}, stage=index, chunks=len(stage.chunks), vpp=layout.vpp)
            return
    following = 0
    for index, chunk, (first, last) in layout.virtual_stages():
        if first != following or last < first - 1:
            text = f"chunk {chunk} of stage {index} holds layers {first} to {last}, layer {following} is next"
            yield _broken("L01", text, {"first": following}, stage=index, chunk=chunk, first=first, last=last)
            return
        following = last + 1
    if following != facts.layers:
        text = f"the layout holds {following} layers, the model has {facts.layers}"
        yield _broken("L01", text, {"layers": facts.layers}, layers=following)


def _holders(layout: Layout, facts: Facts) -> Iterator[Violation]:
    """L02: the holders of the first piece alone hold the embedding, those of the last one the head; as many the prediction."""
    last = layout.holders("head")
    wanted = {"embedding": layout.holders("embedding"), "head": last} if facts.vocab_size else {"embedding": [], "head": []}
    for name, stages in wanted.items():
        holders = [index for index, stage in enumerate(layout.stages) if name in stage.holds]
        if holders != stages:
            text = f"{name} is held by stages {holders}, it belongs to {stages}"
            yield _broken("L02", text, {name: stages}, **{name: holders})
    holders = [index for index, stage in enumerate(layout.stages) if "mtp" in stage.holds]
    if len(holders) != (len(last) if facts.mtp_layers else 0):
        text = f"the {facts.mtp_layers} multi-token prediction layers are held by stages {holders}"
        yield _broken("L02", text, {"mtp": last if facts.mtp_layers else []}, mtp=holders)


def _schedule(layout: Layout) -> Iterator[Violation]:
    """L03: interleaved means several chunks a stage, a path that turns around two, others one; two copies are both the same."""
    if not layout.schedule.goes_with(layout.vpp):
        nearest = {"schedule": layout.schedule.fitting(layout.vpp)}
        text = f"schedule {layout.schedule.kind} does not go with vpp {layout.vpp}"
        yield _broken("L03", text, nearest, schedule=layout.schedule.kind, vpp=layout.vpp)
        return
    pieces: dict[int, Range] = {}
    for chunk in range(layout.vpp):
        for index, stage in enumerate(layout.stages):
            found = pieces.setdefault(layout.schedule.piece(chunk, index, layout.pp), stage.chunks[chunk])
            if found != stage.chunks[chunk]:
                text = f"chunk {chunk} of stage {index} holds layers {list(stage.chunks[chunk])}, the other copy {list(found)}"
                yield _broken("L03", text, {"chunk": list(found)}, stage=index, chunk=chunk)


def _devices(problem: Problem, layout: Layout) -> Iterator[Violation]:
    """L04: devices exist and are used once, idle ones not at all; a part's devices are of one group."""
    sizes = {group.name: group.nodes * group.devices_per_node for group in problem.cluster.groups}
    parts = [part for stage in layout.stages for part in stage.parts]
    for part in parts:
        if len({entry.group for entry in part.devices}) > 1:
            yield _broken("L04", "a part has devices of several groups", groups=sorted({entry.group for entry in part.devices}))
    entries = [entry for part in parts for entry in part.devices] + list(layout.idle_devices)
    for entry in entries:
        if entry.group not in sizes:
            yield _broken("L04", f"there is no group {entry.group!r}", {"group": sorted(sizes)}, group=entry.group)
        elif entry.first + entry.count > sizes[entry.group]:
            text = f"group {entry.group!r} has {sizes[entry.group]} devices, the layout uses up to {entry.first + entry.count}"
            yield _broken("L04", text, {"count": sizes[entry.group]}, group=entry.group, first=entry.first, count=entry.count)
    yield from _overlaps(entries)


def _overlaps(entries: list[DeviceRange]) -> Iterator[Violation]:
    ordered = sorted(entries, key=lambda entry: (entry.group, entry.first))
    for before, after in pairwise(ordered):
        if before.group == after.group and after.first < before.first + before.count:
            text = f"device {after.first} of group {after.group!r} is named twice"
            yield _broken("L04", text, group=after.group, device=after.first)


def _ranks(layout: Layout) -> Iterator[Violation]:
    """L05: ranks 0 ... W - 1, each once; as many as devices in every part."""
    ranges: list[tuple[int, int]] = []
    for index, stage in enumerate(layout.stages):
        for number, part in enumerate(stage.parts):
            count = sum(last - first + 1 for first, last in part.ranks)
            ranges += part.ranks
            if count != part.device_count:
                text = f"stage {index}, part {number}: {count} ranks for {part.device_count} devices"
                yield _broken("L05", text, {"ranks": part.device_count}, stage=index, part=number, ranks=count)
    following = 0
    for first, last in sorted(ranges):
        if first != following or last < first:
            text = f"ranks {first} to {last} do not follow rank {following - 1}"
            yield _broken("L05", text, {"first": following}, first=first, last=last)
            return
        following = last + 1


def _mesh(index: int, number: int, part: Part) -> Iterator[Violation]:
    """L06: sizes of a mesh multiply to the part's devices, each stride is the product of the sizes before it."""
    for name, mesh, axes in (("mesh", part.mesh, _MESH_AXES), ("expert_mesh", part.expert_mesh, _EXPERT_AXES)):
        if name == "expert_mesh" and not mesh:
            continue
        problem = _mesh_problem(mesh, axes, part.device_count)
        if problem:
            text = f"stage {index}, part {number}: {name} {problem}"
            yield _broken("L06", text, {"product": part.device_count}, stage=index, part=number)


def _mesh_problem(mesh: tuple[MeshAxis, ...], axes: tuple[str, ...], devices: int) -> str | None:
    names = [entry.axis for entry in mesh]
    if len(set(names)) != len(names) or not set(names) <= set(axes):
        return f"has axes {names}, they may be {list(axes)}, each once"
    stride = 1
    for entry in mesh:
        if entry.stride != stride:
            return f"axis {entry.axis} has stride {entry.stride}, {stride} is the product of the axes before it"
        stride *= entry.size
    return None if stride == devices else f"has {stride} places for {devices} devices"


def _shares(layout: Layout, index: int, stage: Stage) -> Iterator[Violation]:
    """L07: shares of a stage add up to 1 and are the parts' sequences over the step's, which all stages agree on."""
    rows, first_rows = layout.global_batch_sequences(index), layout.global_batch_sequences(0)
    if rows != first_rows:
        yield _broken(
            "L07", f"stage {index} takes {rows} sequences a step, stage 0 takes {first_rows}", {"gbs": first_rows}, gbs=rows
        )
    for number, part in enumerate(stage.parts):
        share = part.size("dp") * layout.mbs * part.micro_batches / rows
        if abs(part.share - share) > _SHARE_TOLERANCE:
            text = f"stage {index}, part {number} has share {part.share:g}, its micro-batches are {share:g} of the step"
            yield _broken("L07", text, {"share": share}, stage=index, part=number, share=part.share)


def _shards(index: int, stage: Stage) -> Iterator[Violation]:
    """L08: replicate x shard = the stage's data (x context) parallel ranks; what is cut further implies what is cut before."""
    ranks = sum(part.size("dp") * part.size("cp") for part in stage.parts)
    plan = stage.strategy.shard
    for name in ("parameters", "gradients", "optimizer"):
        kind: Shard = getattr(plan, name)
        if kind.replicate * kind.shard != ranks:
            text = f"stage {index}: {name} kept {kind.replicate} times in {kind.shard} shards, there are {ranks} ranks"
            yield _broken("L08", text, {"product": ranks}, stage=index, replicate=kind.replicate, shard=kind.shard)
    if not plan.parameters.shard <= plan.gradients.shard <= plan.optimizer.shard:
        text = f"stage {index}: gradients are cut at least as parameters are, optimizer states at least as gradients"
        yield _broken("L08", text, stage=index)


def _overrides(index: int, stage: Stage) -> Iterator[Violation]:
    """L09: overrides name layers of their stage."""
    layers = set(stage.layers)
    for override in stage.overrides:
        first, last = override.layers
        if not set(range(first, last + 1)) <= layers or last < first:
            text = f"stage {index}: layers {first} to {last} are not all in this stage"
            yield _broken("L09", text, {"chunks": [list(chunk) for chunk in stage.chunks]}, stage=index, layers=[first, last])
