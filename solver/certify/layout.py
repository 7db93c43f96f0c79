"""What can be recounted on a layout without any cost model: layers, devices, ranks, meshes, shares, shards, the global batch.

Every function yields findings as sentences; none means that the layout adds up. Framework rules are asked apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import prod

from solver.cost.scenarios import row_count
from solver.layout import Layout, MeshAxis, Part, Stage
from solver.problem.problem import Problem
from solver.schedules import Schedule, schedules

SHARE_TOLERANCE = 1e-6
MESH_AXES = ("tp", "cp", "dp")
EXPERT_AXES = ("etp", "ep", "edp")


def layout_findings(problem: Problem, layout: Layout) -> Iterator[str]:
    """Everything that does not add up."""
    if len(layout.modules) != 1:
        yield f"the layout has {len(layout.modules)} modules, the model is one"
        return
    if layout.modules[0].module != problem.planned_module:
        yield f"the layout is of module {layout.modules[0].module}, {problem.planned_module} is planned"
    yield from _layers(problem, layout)
    yield from _ends(problem, layout)
    yield from _devices(problem, layout)
    yield from _ranks(layout)
    yield from _replicas(layout)
    yield from _batch(problem, layout)
    yield from _schedule(layout)
    for index, stage in enumerate(layout.stages):
        yield from _shards(index, stage)
        yield from _shares(layout, index, stage)
        for number, part in enumerate(stage.parts):
            yield from _mesh(f"stage {index}, part {number}", part)


def _layers(problem: Problem, layout: Layout) -> Iterator[str]:
    layers = problem.transformer.layers
    ranges = [chunk for stage in layout.stages for chunk in stage.chunks]
    ranges += [override.layers for stage in layout.stages for override in stage.overrides]
    beyond = [[first, last] for first, last in ranges if last >= layers or last < first - 1]
    if beyond:
        yield f"ranges {beyond} leave the layers 0 to {layers - 1}"
        return
    if any(len(stage.chunks) != layout.vpp for stage in layout.stages):
        yield f"not every stage has vpp = {layout.vpp} chunks"
        return
    schedule = schedules().get(layout.schedule.kind)
    if schedule is None or schedule.chunks not in (None, layout.vpp):
        yield f"schedule {layout.schedule.kind} does not go with vpp {layout.vpp}"
        return
    held = Counter(layer for stage in layout.stages for layer in stage.layers)
    missing = [layer for layer in range(layers) if held[layer] == 0]
    twice = sorted(layer for layer, count in held.items() if count != schedule.copies)
    if missing:
        yield f"layers {_some(missing)} are on no stage"
    if twice:
        yield f"layers {_some(twice)} are held {'twice' if schedule.copies == 1 else f'other than {schedule.copies} times'}"
    yield from _paths(schedule, layout)
    for index, stage in enumerate(layout.stages):
        stray = [layer for o in stage.overrides for layer in range(o.layers[0], o.layers[1] + 1) if layer not in stage.layers]
        if stray:
            yield f"overrides of stage {index} name layers {_some(stray)} of other stages"


def _paths(schedule: Schedule, layout: Layout) -> Iterator[str]:
    """A micro-batch meets the layers in their order, whichever copy of them it passes."""
    pieces = [schedule.piece(chunk, index, layout.pp) for index in range(layout.pp) for chunk in range(layout.vpp)]
    chunks = [chunk for stage in layout.stages for chunk in stage.chunks]
    order = sorted(zip(pieces, chunks, strict=True))
    if any(piece == other and chunk != copy for (piece, chunk), (other, copy) in pairwise(order)):
        yield "two copies of a part of the pipeline hold other layers"
    layers = [layer for _, (first, last) in dict(order).items() for layer in range(first, last + 1)]
    if layers != sorted(layers):
        yield "a micro-batch does not pass the layers in their order"


def _some(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")


def _ends(problem: Problem, layout: Layout) -> Iterator[str]:
    """The embedding sits with the first piece, head and prediction layers with the last, each once."""
    schedule = schedules().get(layout.schedule.kind)
    if schedule is None:
        return
    pieces = [{schedule.piece(chunk, index, layout.pp) for chunk in range(layout.vpp)} for index in range(layout.pp)]
    end = schedule.pieces(layout.pp, layout.vpp) - 1
    first, last = ([index for index, held in enumerate(pieces) if piece in held] for piece in (0, end))
    wanted = {"embedding": first, "head": last, "mtp": last if problem.transformer.mtp_layers else []}
    for name, stages in wanted.items():
        holders = [index for index, stage in enumerate(layout.stages) for held in stage.holds if held == name]
        if holders != stages:
            yield f"{name} is held by stages {holders}, not {stages}"


def _devices(problem: Problem, layout: Layout) -> Iterator[str]:
    """Every device of the cluster is used by one part or idle, exactly once."""
    sizes = {group.name: group.nodes * group.devices_per_node for group in problem.cluster.groups}
    parts = [part for stage in layout.stages for part in stage.parts]
    seen: Counter[tuple[str, int]] = Counter()
    for entry in [*(entry for part in parts for entry in part.devices), *layout.idle_devices]:
        if entry.first + entry.count > sizes.get(entry.group, 0):
            yield f"group {entry.group} has no devices {entry.first} to {entry.first + entry.count - 1}"
            continue
        seen.update((entry.group, device) for device in range(entry.first, entry.first + entry.count))
    for name, size in sizes.items():
        counts = [seen[name, device] for device in range(size)]
        twice = [device for device, count in enumerate(counts) if count > 1]
        never = [device for device, count in enumerate(counts) if count == 0]
        if twice:
            yield f"devices {_some(twice)} of group {name} are used twice"
        if never:
            yield f"devices {_some(never)} of group {name} are neither used nor idle"
    if any(len({entry.group for entry in part.devices}) > 1 for part in parts):
        yield "a part has devices of several groups"


def _ranks(layout: Layout) -> Iterator[str]:
    """Ranks 0 ... N - 1 of the launch, each in one part; a part has as many as devices."""
    ranges: list[tuple[int, int]] = []
    for index, stage in enumerate(layout.stages):
        for number, part in enumerate(stage.parts):
            ranks = sum(last - first + 1 for first, last in part.ranks)
            ranges += part.ranks
            if ranks != part.device_count:
                yield f"stage {index}, part {number} has {ranks} ranks on {part.device_count} devices"
    following = 0
    for first, last in sorted(ranges):
        if first != following or last < first:
            yield f"rank {following} is not the first of one part's ranks; they are not 0 to N - 1, each once"
            return
        following = last + 1


def _mesh(where: str, part: Part) -> Iterator[str]:
    yield from _covering(f"{where}: the mesh", part.mesh, MESH_AXES, part.device_count)
    if part.expert_mesh:
        yield from _covering(f"{where}: the expert mesh", part.expert_mesh, EXPERT_AXES, part.device_count)


def _covering(what: str, mesh: tuple[MeshAxis, ...], axes: tuple[str, ...], ranks: int) -> Iterator[str]:
    """Coordinates times strides reach every rank of the part exactly once."""
    names = [entry.axis for entry in mesh]
    if len(set(names)) != len(names) or not set(names) <= set(axes):
        yield f"{what} has axes {names}, it may have {list(axes)}, each once"
        return
    sizes = prod(entry.size for entry in mesh)
    if sizes != ranks:
        yield f"{what} multiplies to {sizes}, there are {ranks} ranks"
        return
    places = [0]
    for entry in mesh:
        places = [place + step * entry.stride for place in places for step in range(entry.size)]
    if sorted(places) != list(range(ranks)):
        yield f"{what}: its strides do not reach every rank once"


def replica_micro_batches(stage: Stage) -> list[int]:
    """Micro-batches of every replica of a stage, in the order of its parts."""
    return [part.micro_batches for part in stage.parts for _ in range(part.size("dp"))]


def _replicas(layout: Layout) -> Iterator[str]:
    """Replica r runs through all stages with the same micro-batches."""
    first = replica_micro_batches(layout.stages[0])
    for index, stage in enumerate(layout.stages):
        if replica_micro_batches(stage) != first:
            yield f"the replicas of stage {index} take other micro-batches than those of stage 0"


def _batch(problem: Problem, layout: Layout) -> Iterator[str]:
    """dp x mbs x micro-batches over the parts is the global batch within its tolerance (tokens: over the mean row)."""
    batch = problem.workload.global_batch
    wanted = batch.sequences if batch.sequences is not None else row_count(problem)
    for index, stage in enumerate(layout.stages):
        rows = sum(part.size("dp") * layout.mbs * part.micro_batches for part in stage.parts)
        if abs(rows - wanted) > batch.tolerance * wanted:
            yield f"stage {index} takes {rows} rows a step, the global batch is {wanted} (tolerance {batch.tolerance:g})"


def _shares(layout: Layout, index: int, stage: Stage) -> Iterator[str]:
    rows = [part.size("dp") * layout.mbs * part.micro_batches for part in stage.parts]
    if abs(sum(part.share for part in stage.parts) - 1) > SHARE_TOLERANCE:
        yield f"the shares of stage {index} add up to {sum(part.share for part in stage.parts):g}"
    for number, (part, own) in enumerate(zip(stage.parts, rows, strict=True)):
        if abs(part.share - own / sum(rows)) > SHARE_TOLERANCE:
            yield f"stage {index}, part {number} has share {part.share:g}, its micro-batches make {own / sum(rows):g}"


def _shards(index: int, stage: Stage) -> Iterator[str]:
    """Copies x pieces = data x context parallel ranks of the stage; what is cut later is cut at least as fine."""
    ranks = sum(part.size("dp") * part.size("cp") for part in stage.parts)
    plan = stage.strategy.shard
    for name, kind in (("parameters", plan.parameters), ("gradients", plan.gradients), ("optimizer", plan.optimizer)):
        if kind.replicate * kind.shard != ranks:
            yield f"stage {index}: {name} are {kind.replicate} x {kind.shard}, there are {ranks} data-parallel ranks"
    if not plan.parameters.shard <= plan.gradients.shard <= plan.optimizer.shard:
        yield f"stage {index}: parameters are cut finer than gradients, or gradients finer than optimizer states"


def _schedule(layout: Layout) -> Iterator[str]:
    schedule = schedules().get(layout.schedule.kind)
    if schedule is None:
        yield f"there is no schedule {layout.schedule.kind}"
        return
    for part in layout.stages[0].parts:
        refusal = schedule.refusal(layout.pp, layout.vpp, part.micro_batches)
        if refusal:
            yield refusal
