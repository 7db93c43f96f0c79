"""What a layout asks of a framework beyond columns of one part: unlike stages, shares, layers and devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solver.frameworks.rules import Capabilities
from solver.layout import Layout, Part, Stage
from solver.plan import Violation
from solver.problem.problem import Problem

DEGREES = ("tp", "cp", "dp", "etp", "ep", "edp")


def capability_violations(problem: Problem, layout: Layout, can: Capabilities) -> Iterator[Violation]:
    if can.uneven_layers != "any":
        yield from _uneven_layers(layout, can.uneven_layers)
    if not can.per_stage_degrees:
        yield from _unlike_stages(layout)
    if not can.unequal_shares:
        yield from _unequal_shares(layout)
    if can.per_layer_recompute != "any":
        yield from _recompute(layout, can.per_layer_recompute)
    if can.unlike_devices != "any":
        yield from _unlike_devices(problem, layout, can.unlike_devices)


def _asks(name: str, message: str, **values: Any) -> Violation:
    return Violation(rule=f"CAP-{name}", severity="refused", message=message, values=values)


def _uneven_layers(layout: Layout, allowed: str) -> Iterator[Violation]:
    """Equal chunks within a stage; equal stages, or equal ones between the first and the last."""
    chunks = [[last - first + 1 for first, last in stage.chunks] for stage in layout.stages]
    counts = [sum(chunk) for chunk in chunks]
    compared = counts[1:-1] if allowed == "ends" else counts
    if len(set(compared)) > 1 or any(len(set(chunk)) > 1 for chunk in chunks):
        where = "stages between the first and the last" if allowed == "ends" else "stages"
        yield _asks("uneven_layers", f"{where} hold unequal numbers of layers: {counts}", layers=counts)


def part_degrees(part: Part) -> tuple[int, ...]:
    """Degrees of one part but for data parallelism, which parts of a stage add up."""
    return tuple(part.size(name) for name in ("tp", "cp", "etp", "ep"))


def _stage_degrees(stage: Stage) -> tuple[object, ...]:
    strategy = stage.strategy
    dp = sum(part.size("dp") for part in stage.parts)
    settings = (strategy.sequence_parallel, strategy.shard, strategy.offload, strategy.cp_kind, strategy.reshard_after_forward)
    return (sorted({part_degrees(part) for part in stage.parts}), dp, settings)


def _unlike_stages(layout: Layout) -> Iterator[Violation]:
    degrees = [_stage_degrees(stage) for stage in layout.stages]
    for index, found in enumerate(degrees):
        if found != degrees[0]:
            text = f"stage {index} has other degrees or another strategy than stage 0"
            yield _asks("per_stage_degrees", text, stage=index)
            return
    if len({part_degrees(part) for stage in layout.stages for part in stage.parts}) > 1:
        yield _asks("per_stage_degrees", "parts of a stage have unlike degrees")


def _unequal_shares(layout: Layout) -> Iterator[Violation]:
    counts = sorted({part.micro_batches for stage in layout.stages for part in stage.parts})
    if len(counts) > 1:
        text = f"replicas take unequal numbers of micro-batches: {counts}"
        yield _asks("unequal_shares", text, micro_batches=counts)


def recompute_counts(layout: Layout) -> list[list[str]]:
    """Recompute kind of every layer, by virtual stage in pipeline order."""
    return [[layout.stages[index].recompute_of(layer).kind for layer in range(first, last + 1)]
            for index, _, (first, last) in layout.virtual_stages()]  # fmt: skip


def recomputed_per_chunk(layout: Layout) -> int | None:
    """N such that exactly the first N layers of every virtual stage (all, where it has fewer) are recomputed in full.

    None when no such N exists. Where all layers are recomputed, N is the size of the largest virtual stage.
    """
    kinds = recompute_counts(layout)
    count = max((sum(kind == "full" for kind in chunk) for chunk in kinds), default=0)
    for chunk in kinds:
        full = min(count, len(chunk))
        if chunk != ["full"] * full + ["none"] * (len(chunk) - full):
            return None
    return count


def _recompute(layout: Layout, granularity: str) -> Iterator[Violation]:
    kinds = recompute_counts(layout)
    if len({kind for chunk in kinds for kind in chunk}) <= 1:
        return
    if granularity == "none":
        yield _asks("per_layer_recompute", "layers differ in what they recompute")
    elif recomputed_per_chunk(layout) is None:
        counts = [sum(kind != "none" for kind in chunk) for chunk in kinds]
        text = "only the first N layers of every virtual stage can be recomputed in full, one N for all of them"
        yield _asks("per_layer_recompute", text, recomputed_layers=counts)


def _unlike_devices(problem: Problem, layout: Layout, allowed: str) -> Iterator[Violation]:
    devices = {group.name: group.device for group in problem.cluster.groups}
    used = sorted({entry.group for stage in layout.stages for part in stage.parts for entry in part.devices})
    kinds = {devices[name].name for name in used if name in devices}
    vendors = {devices[name].vendor for name in used if name in devices}
    if len(kinds) > 1 and (allowed == "no" or len(vendors) > 1):
        yield _asks("unlike_devices", f"one run spans {', '.join(sorted(kinds))}", groups=used)
