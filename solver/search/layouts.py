"""From a priced variant of a cell to the layout document."""

from __future__ import annotations

import numpy as np

from solver.balance.batch import Candidates
from solver.balance.batch_kernels import place
from solver.cost.laid_out import recompute_of
from solver.cost.memory_kernels import MEMORY_COLUMNS
from solver.cost.recompute_kernels import choose_recompute
from solver.cost.table import CostModel
from solver.dimensions.build import LayoutShape, PartShape, build_layout
from solver.dimensions.ranks import RankMap
from solver.layout import SCHEDULE_KINDS, Layout
from solver.schedules.dispatch import pieces_of
from solver.search.cells import Cells
from solver.search.grid import CP_KINDS, Grid
from solver.search.tables import TableBuilder

POLICIES = {"padded": "padded", "packed": "packed_static_cp"}


def layout_of(
    model: CostModel, grid: Grid, builder: TableBuilder, cell: Cells, state: int, mode: int, offload_percent: int
) -> Layout:
    """The layout of a variant of a single cell (`cell` has one row)."""
    variant = grid.states[state]
    low, high = grid.modes[mode]
    one = np.ones(1, dtype=np.int64)
    alone = int(cell.cp[0, 0] * cell.total_dp[0]) == 1
    candidate = builder.candidates(
        cell,
        zero=one * (0 if alone else variant.zero),
        inside_node=np.array([variant.inside_node]),
        low=one * low,
        high=one * high,
    ).with_offload(offload_percent)
    tables = builder.tables()
    stages, vpp = int(cell.stages[0]), int(cell.vpp[0])
    start = tables.split_start[candidate.split[0]]
    schedule = int(cell.schedule[0])
    bounds = tables.bounds[start : start + pieces_of(schedule, stages, vpp) + 1]
    options = _options(model, grid, builder, candidate, bounds)
    copies = builder.slot_copies(cell)[0] if variant.inside_node and variant.zero > 0 else (1, 1)
    groups = model.problem.cluster.groups
    order = list(dict.fromkeys([int(cell.group[0, 0]), int(cell.group[0, 1]), *range(len(groups))]))
    ranks = RankMap(groups=tuple(groups[g].name for g in order), sizes=tuple(model.networks[g].devices for g in order))
    meaning = {option: recompute_of(model, option) for option in set(options.tolist())}
    experts = any(kind.mlp is not None and kind.mlp.kind == "moe" for kind in model.architecture.kinds)
    return build_layout(
        LayoutShape(
            module=model.problem.planned_module,
            ranks=ranks,
            parts=_parts(cell),
            bounds=bounds,
            recompute=tuple(meaning[option] for option in options.tolist()),
            schedule=SCHEDULE_KINDS[int(cell.schedule[0])],
            vpp=vpp,
            mbs=int(cell.mbs[0]),
            zero=variant.zero,
            replicate=int(copies[0]),
            stage_replicate=tuple(int(copies[0 if stage < int(cell.first_count[0, 0]) else 1]) for stage in range(stages)),
            sequence_parallel=grid.sequence_parallel[0],
            cp_kind=CP_KINDS[int(cell.cp_kind[0])],
            offload_optimizer=offload_percent / 100.0,
            sequence_policy=POLICIES[model.problem.workload.batching[0]],
            vocabulary=model.architecture.model.vocab_size > 0,
            mtp=model.architecture.mtp_layers > 0,
            experts=experts,
            overlap=model.problem.workload.software.assumptions["gradient_overlap_fraction"] > 0.0,
        )
    )


def _options(model: CostModel, grid: Grid, builder: TableBuilder, candidate: Candidates, bounds: np.ndarray) -> np.ndarray:
    """Recompute option of every layer, as the kernels choose it."""
    tables = builder.tables()
    stages, chains = int(candidate.stages[0]), int(candidate.chains[0])
    point_at = np.empty((chains, stages), dtype=np.int64)
    mesh_at = np.empty((chains, stages), dtype=np.int64)
    placement = tables.placements[candidate.placement[0]]
    place(
        tables.points,
        placement,
        stages,
        chains,
        candidate.slot_point[0],
        candidate.slot_mesh[0],
        int(candidate.cross_mesh[0]),
        point_at,
        mesh_at,
    )
    options = np.zeros(model.architecture.layers, dtype=np.int64)
    memory = np.zeros((chains, stages, MEMORY_COLUMNS))
    choose_recompute(
        tables.kinds,
        tables.points,
        tables.meshes,
        model.groups,
        model.scalars,
        model.architecture.kind_of_layer,
        bounds,
        stages,
        int(candidate.vpp[0]),
        int(candidate.schedule[0]),
        point_at,
        mesh_at,
        candidate.micro_batches[0, :chains],
        int(candidate.zero[0]),
        candidate.offload_percent[0] / 100.0,
        int(candidate.low[0]),
        int(candidate.high[0]),
        grid.same_count,
        options,
        memory,
    )
    return options


def _parts(cell: Cells) -> tuple[tuple[PartShape, ...], ...]:
    """Parts of every stage. Slot s is the group at position s of the rank map (0 when there is one group)."""
    stages = int(cell.stages[0])
    across = int(cell.group[0, 0]) != int(cell.group[0, 1])
    used = [0, 0]
    found = []
    for stage in range(stages):
        parts: list[PartShape] = []
        for chain in range(int(cell.chains[0])):
            slot = 0 if stage < int(cell.first_count[0, chain]) else 1
            dp = int(cell.dp[0, chain])
            part = _part(cell, slot, dp, int(cell.micro[0, chain]), slot if across else 0, used)
            # replicas of two chains on one group are one part unless their shares differ
            last = parts[-1] if parts else None
            if last is not None and last.group == part.group and last.micro_batches == part.micro_batches:
                parts[-1] = PartShape(
                    last.group, last.first_device, last.tp, last.cp, last.dp + dp, last.ep, last.etp, last.micro_batches
                )
            else:
                parts.append(part)
        found.append(tuple(parts))
    return tuple(found)


def _part(cell: Cells, slot: int, dp: int, micro: int, position: int, used: list[int]) -> PartShape:
    tp, cp = int(cell.tp[0, slot]), int(cell.cp[0, slot])
    part = PartShape(
        group=position,
        first_device=used[position],
        tp=tp,
        cp=cp,
        dp=dp,
        ep=int(cell.ep[0, slot]),
        etp=int(cell.etp[0, slot]),
        micro_batches=micro,
    )
    used[position] += part.size
    return part
