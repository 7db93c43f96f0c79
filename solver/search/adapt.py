"""A layout of a near problem, fitted to this one: the same stages, degrees and strategies, as many replicas as its devices and
its global batch allow. What comes out is only a proposal; the evaluator, the framework's rules and `certify` judge it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from solver.cost.table import CostModel
from solver.dimensions.build import LayoutShape, PartShape, build_layout
from solver.dimensions.ranks import RankMap
from solver.layout import Layout, Part, Recompute, Stage


def adapted(model: CostModel, layout: Layout) -> Iterator[Layout]:
    """Layouts of the model's problem after the pattern of `layout`; none where replicas are unlike.

    Most replicas first, then the largest micro-batch that is not above the old one; where fewer replicas leave too little memory,
    everything is recomputed.
    """
    stages = layout.modules[0].stages
    parts = [stage.parts[0] for stage in stages]
    layers = sum(last - first + 1 for _, _, (first, last) in layout.virtual_stages())
    if len(layout.modules) > 1 or any(len(stage.parts) > 1 for stage in stages) or layers != model.architecture.layers:
        return
    groups = list(dict.fromkeys(part.devices[0].group for part in parts))
    sizes = {group.name: group.nodes * group.devices_per_node for group in model.problem.cluster.groups}
    if any(name not in sizes for name in groups):
        return
    needed = {name: sum(_replica(part) for part in parts if part.devices[0].group == name) for name in groups}
    most = min(sizes[name] // needed[name] for name in groups)
    rows = round(float(np.mean(model.scenarios.rows)))
    order = [*groups, *(name for name in sizes if name not in groups)]
    ranks = RankMap(groups=tuple(order), sizes=tuple(sizes[name] for name in order))
    for dp in range(most, 0, -1):
        for mbs in range(layout.mbs, 0, -1):
            if layout.mbs % mbs or rows % (dp * mbs):
                continue
            shape = _shape(layout, ranks, stages, dp, mbs, rows // (dp * mbs))
            yield build_layout(shape)
            yield build_layout(replace(shape, recompute=(Recompute(kind="full"),) * layers))


def _replica(part: Part) -> int:
    return part.size("tp") * part.size("cp")


def _shape(layout: Layout, ranks: RankMap, stages: Sequence[Stage], dp: int, mbs: int, micro_batches: int) -> LayoutShape:
    """The shape of the old layout with other replicas."""
    parts, used = [], [0] * len(ranks.groups)
    for stage in stages:
        old = stage.parts[0]
        group = ranks.groups.index(old.devices[0].group)
        part = PartShape(
            group=group,
            first_device=used[group],
            tp=old.size("tp"),
            cp=old.size("cp"),
            dp=dp,
            ep=old.size("ep"),
            etp=old.size("etp"),
            micro_batches=micro_batches,
        )
        used[group] += part.size
        parts.append((part,))
    first = stages[0].strategy
    copies = tuple(_copies(stage, part[0]) for stage, part in zip(stages, parts, strict=True))
    chunks = [chunk for _, _, chunk in layout.virtual_stages()]
    return LayoutShape(
        module=layout.modules[0].module,
        ranks=ranks,
        parts=tuple(parts),
        bounds=np.array([0, *accumulate(last - start + 1 for start, last in chunks)], dtype=np.int64),
        recompute=tuple(_recompute(stages)),
        schedule=layout.schedule.kind,
        vpp=layout.vpp,
        mbs=mbs,
        zero=first.shard.zero,
        replicate=copies[0],
        stage_replicate=copies,
        sequence_parallel=any(stage.strategy.sequence_parallel for stage in stages),
        cp_kind=first.cp_kind,
        offload_optimizer=first.offload.optimizer,
        sequence_policy=layout.sequence_policy,
        vocabulary=any("embedding" in stage.holds for stage in stages),
        mtp=any("mtp" in stage.holds for stage in stages),
        experts=any(stage.parts[0].expert_mesh for stage in stages),
        overlap=layout.gradient_sync.overlap,
    )


def _copies(stage: Stage, part: PartShape) -> int:
    """Copies of a shard group as before, if the new replicas can be cut so."""
    copies = stage.strategy.shard.optimizer.replicate if stage.strategy.shard.zero else 1
    return copies if (part.cp * part.dp) % copies == 0 else 1


def _recompute(stages: Sequence[Stage]) -> list[Recompute]:
    """What each layer recomputes, in order of layers."""
    found: dict[int, Recompute] = {}
    for stage in stages:
        for first, last in stage.chunks:
            found |= dict.fromkeys(range(first, last + 1), stage.strategy.recompute)
        for override in stage.overrides:
            if override.recompute is not None:
                found |= dict.fromkeys(range(override.layers[0], override.layers[1] + 1), override.recompute)
    return [found[layer] for layer in sorted(found)]
