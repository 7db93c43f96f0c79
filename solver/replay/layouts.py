"""What a leaf of the recounted space stands for: its devices and its layouts, written out one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from solver.cost.laid_out import recompute_of
from solver.dimensions.build import LayoutShape, PartShape, build_layout
from solver.dimensions.ranks import RankMap
from solver.layout import SCHEDULE_KINDS, Layout, Shard, ShardPlan, Stage
from solver.replay.options import Options
from solver.replay.space import Cell, chains_of
from solver.replay.splits import split_bounds
from solver.schedules import get_schedule

POLICIES = {"padded": "padded", "packed": "packed_static_cp"}


def stage_parts(options: Options, cell: Cell) -> tuple[tuple[PartShape, ...], ...]:
    """Devices of every stage, handed out in order on each group; equal replicas on one group are one part."""
    used = [0, 0]
    found = []
    for stage in range(cell.pp):
        parts: list[PartShape] = []
        for chain in chains_of(options, cell):
            slot = 0 if stage < chain.first or len(cell.groups) == 1 else 1
            dp, first = chain.count, used[slot]
            if parts and parts[-1].group == slot and parts[-1].micro_batches == chain.micro_batches:
                dp, first = dp + parts[-1].dp, parts.pop().first_device
            part = PartShape(slot, first, cell.tp[slot], cell.cp, dp, cell.ep, cell.etp, chain.micro_batches)
            used[slot] = first + part.size
            parts.append(part)
        found.append(tuple(parts))
    return tuple(found)


def layout_document(
    options: Options,
    cell: Cell,
    recompute: Sequence[int],
    zero: int,
    inside_node: bool,
    offload_percent: int,
    bounds: np.ndarray | None = None,
) -> Layout:
    """The layout of a leaf with one recompute option per layer; `bounds` replaces its own layer split."""
    model = options.model
    groups = model.problem.cluster.groups
    order = [*cell.groups, *(index for index in range(len(groups)) if index not in cell.groups)]
    layout = build_layout(
        LayoutShape(
            module=model.problem.planned_module,
            ranks=RankMap(tuple(groups[index].name for index in order), tuple(options.devices(index) for index in order)),
            parts=stage_parts(options, cell),
            bounds=split_bounds(options, cell) if bounds is None else bounds,
            recompute=tuple(recompute_of(model, int(option)) for option in recompute),
            schedule=SCHEDULE_KINDS[get_schedule(cell.schedule).code],
            vpp=cell.vpp,
            mbs=cell.mbs,
            zero=zero,
            replicate=1,
            sequence_parallel=options.sequence_parallel,
            cp_kind=cell.cp_kind,
            offload_optimizer=offload_percent / 100.0,
            sequence_policy=POLICIES[model.problem.workload.batching[0]],
            vocabulary=model.architecture.model.vocab_size > 0,
            mtp=model.architecture.mtp_layers > 0,
            experts=options.experts > 1,
            overlap=model.problem.workload.software.assumptions["gradient_overlap_fraction"] > 0.0,
        )
    )
    return _inside_nodes(options, cell, layout) if inside_node else layout


def _inside_nodes(options: Options, cell: Cell, layout: Layout) -> Layout:
    """The same with every shard group inside a node of its stage."""
    stages = tuple(_stage_inside_node(options, cell, stage) for stage in layout.stages)
    return layout.model_copy(update={"modules": (layout.modules[0].model_copy(update={"stages": stages}),)})


def _stage_inside_node(options: Options, cell: Cell, stage: Stage) -> Stage:
    names = [options.model.problem.cluster.groups[index].name for index in cell.groups]
    slot = names.index(stage.parts[0].group)
    inside = max(options.per_node(cell.groups[slot]) // cell.tp[slot], 1)

    def cut(shard: Shard) -> Shard:
        return Shard(replicate=shard.shard // inside, shard=inside) if shard.shard > 1 else shard

    plan = stage.strategy.shard
    plan = ShardPlan(parameters=cut(plan.parameters), gradients=cut(plan.gradients), optimizer=cut(plan.optimizer))
    return stage.model_copy(update={"strategy": stage.strategy.model_copy(update={"shard": plan})})


def recompute_choices(options: Options, cell: Cell) -> Iterator[tuple[int, ...]]:
    """Every recompute of a leaf that the space allows, as one option per layer, each once.

    In a mixture the first k layers of a stage take the second option: any k per stage, or one k for all virtual stages where the
    framework has a single count or layers have two copies.
    """
    bounds = split_bounds(options, cell)
    one_count = options.rules.capabilities.per_layer_recompute == "per_stage_count"
    one_count = one_count or get_schedule(cell.schedule).copies > 1  # both copies of a layer do the same
    chunks = [range(int(bounds[k]), int(bounds[k + 1])) for k in range(cell.pieces)]
    stages = chunks if one_count else [[n for k in pieces for n in chunks[k]] for pieces in cell.pieces_of_stages()]
    seen = set()
    for low, high in options.modes():
        longest = max(len(stage) for stage in stages)
        counts = [(k,) * len(stages) for k in range(longest + 1)] if one_count else product(*(range(len(s) + 1) for s in stages))
        for count in counts if low != high else [(0,) * len(stages)]:
            chosen = [low] * options.layers
            for stage, first in zip(stages, count, strict=True):
                for layer in list(stage)[:first]:
                    chosen[layer] = high
            if tuple(chosen) not in seen:
                seen.add(tuple(chosen))
                yield tuple(chosen)
