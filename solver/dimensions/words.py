"""From a layout in classical words to the full layout: devices in group order, axes innermost first tp, cp, dp, pp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.dimensions.build import LayoutShape, PartShape, build_layout
from solver.dimensions.ranks import RankMap
from solver.errors import FieldError, InvalidProblem
from solver.frameworks.columns import uniform_row
from solver.frameworks.facts import read_facts
from solver.frameworks.predicates import balanced_split
from solver.layout import MAX_LAYERS, MAX_MICRO_BATCHES, Layout, Recompute, UniformLayout
from solver.problem.problem import Problem

POLICIES = {"padded": "padded", "packed": "packed_static_cp"}


def expand_uniform(
    problem: Problem,
    layout: UniformLayout,
    layers_per_chunk: Sequence[int] | None = None,
    replicate: int = 1,
    recompute: Sequence[Recompute] | None = None,
) -> Layout:
    """The layout that the words stand for; `layers_per_chunk` (virtual stages in pipeline order) defaults to equal counts,
    `replicate` is the number of copies of a shard group, `recompute` of each layer defaults to the layout's.

    Raises `InvalidProblem` when the words do not name enough devices; rules of frameworks are checked elsewhere.
    """
    facts = read_facts(problem)
    row = uniform_row(problem, layout, facts)
    if layout.pp * layout.vpp > MAX_LAYERS:
        raise InvalidProblem((FieldError("/vpp", "too_large", f"{layout.pp * layout.vpp} chunks", (f"<= {MAX_LAYERS}",)),))
    if row["micro_batches"] > MAX_MICRO_BATCHES:
        text = f"{row['micro_batches']} micro-batches a replica"
        raise InvalidProblem((FieldError("/gbs", "too_large", text, (f"<= {MAX_MICRO_BATCHES}",)),))
    dp, micro_batches = row["dp"], max(1, row["micro_batches"])
    ranks = _rank_map(problem, layout, layout.tp * layout.cp * dp * layout.pp)
    pieces = layout.schedule.pieces(layout.pp, layout.vpp)
    counts = list(layers_per_chunk or balanced_split(facts.layers, pieces))
    assert len(counts) == pieces
    return build_layout(
        LayoutShape(
            module=problem.planned_module,
            ranks=ranks,
            parts=tuple(_parts(layout, ranks, dp, micro_batches, index) for index in range(layout.pp)),
            bounds=np.cumsum([0, *counts]).astype(np.int64),
            recompute=tuple(recompute or (layout.recompute,) * sum(counts)),
            schedule=layout.schedule.kind,
            vpp=layout.vpp,
            mbs=layout.mbs,
            zero=row["zero"],
            replicate=replicate,
            sequence_parallel=layout.sequence_parallel,
            cp_kind=layout.cp_kind,
            offload_optimizer=layout.offload_optimizer,
            sequence_policy=POLICIES[problem.workload.batching[0]],
            vocabulary=facts.vocab_size > 0,
            mtp=facts.mtp_layers > 0,
            experts=facts.moe,
            overlap=problem.workload.software.assumptions["gradient_overlap_fraction"] > 0.0,
        )
    )


def _rank_map(problem: Problem, layout: UniformLayout, wanted: int) -> RankMap:
    """The named groups in rank order, then the others (idle)."""
    sizes = {group.name: group.nodes * group.devices_per_node for group in problem.cluster.groups}
    names = tuple(dict.fromkeys(layout.groups or sizes))
    for index, name in enumerate(names):
        if name not in sizes:
            raise InvalidProblem((FieldError(f"/groups/{index}", "unknown_name", f"there is no group {name!r}", tuple(sizes)),))
    available = sum(sizes[name] for name in names)
    if wanted > available:
        text = f"tp x cp x dp x pp is {wanted}, the groups have {available} devices"
        raise InvalidProblem((FieldError("/dp", "out_of_range", text, (f"<= {available}",)),))
    order = tuple(dict.fromkeys([*names, *sizes]))
    return RankMap(groups=order, sizes=tuple(sizes[name] for name in order))


def _parts(layout: UniformLayout, ranks: RankMap, dp: int, micro_batches: int, stage: int) -> tuple[PartShape, ...]:
    """Parts of one stage: its replicas in rank order, cut where a group ends."""
    replica = layout.tp * layout.cp
    position, device = ranks.locate(stage * dp * replica)
    left, found = dp * replica, []
    while left:
        taken = min(left, ranks.sizes[position] - device)
        if taken % replica:
            text = f"a replica of {replica} devices would span groups: a stage has {taken} of {ranks.groups[position]!r}"
            raise InvalidProblem((FieldError("/groups", "conflict", text, None),))
        found.append(
            PartShape(
                group=position,
                first_device=device,
                tp=layout.tp,
                cp=layout.cp,
                dp=taken // replica,
                ep=layout.ep,
                etp=layout.etp,
                micro_batches=micro_batches,
            )
        )
        left -= taken
        position, device = position + 1, 0
    return tuple(found)
