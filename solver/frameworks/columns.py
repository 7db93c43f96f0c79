"""Layouts as the columns that rules read: one row per part of every stage, or one row for a layout in classical words."""

from __future__ import annotations

from solver.frameworks.facts import Facts
from solver.frameworks.rules import CP_KIND_CODES, RECOMPUTE_CODES
from solver.layout import Layout, Part, Stage, UniformLayout
from solver.problem.problem import Problem


def default_zero(problem: Problem) -> int:
    """ZeRO stage of a layout that names none: the software profile's (a parsed problem has all its assumptions)."""
    return int(problem.workload.software.assumptions["default_zero"])


def layout_rows(layout: Layout) -> list[tuple[int, int, dict[str, int]]]:
    """`(stage, part, row)`; the devices of a row are those its own degrees need, since parts differ."""
    rows = []
    for index, stage in enumerate(layout.stages):
        for number, part in enumerate(stage.parts):
            rows.append((index, number, _part_row(layout, stage, part, layout.global_batch_sequences(index))))
    return rows


def zero_stage(layout: Layout, stage: Stage) -> int:
    """ZeRO stage; where one rank holds everything, reduce_scatter tells the distributed optimizer from the plain one."""
    ranks = sum(part.size("dp") * part.size("cp") for part in stage.parts)
    if ranks == 1:
        return int(layout.gradient_sync.kind == "reduce_scatter")
    return stage.strategy.shard.zero


def _part_row(layout: Layout, stage: Stage, part: Part, step_rows: int) -> dict[str, int]:
    sizes = {name: part.size(name) for name in ("tp", "cp", "dp", "ep", "etp")}
    empty = sum(last < first for _, _, (first, last) in layout.virtual_stages())
    strategy = stage.strategy
    return sizes | {
        "pp": layout.pp,
        "vpp": layout.vpp,
        "schedule": layout.schedule.code,
        "mbs": layout.mbs,
        "micro_batches": part.micro_batches,
        "zero": zero_stage(layout, stage),
        "recompute": RECOMPUTE_CODES.index(strategy.recompute.kind),
        "sequence_parallel": int(strategy.sequence_parallel),
        "cp_kind": CP_KIND_CODES.index(strategy.cp_kind),
        "offload_optimizer_percent": round(100 * strategy.offload.optimizer),
        "explicit_split": 1,
        "empty_chunks": empty,
        "optimizer_replicas": strategy.shard.optimizer.replicate if strategy.shard.zero else 1,
        "devices": sizes["tp"] * sizes["cp"] * sizes["dp"] * layout.pp,
        "step_rows": step_rows,
    }


def uniform_row(problem: Problem, layout: UniformLayout, facts: Facts) -> dict[str, int]:
    """One row; dp defaults to what the devices allow, micro-batches to what the global batch needs (0 if it needs none)."""
    devices = group_devices(problem, layout.groups)
    dp = layout.dp or max(1, devices // (layout.tp * layout.cp * layout.pp))
    rows = layout.gbs or facts.rows or dp * layout.mbs
    return {
        **{name: getattr(layout, name) for name in ("tp", "cp", "pp", "ep", "etp", "vpp", "mbs")},
        "dp": dp,
        "schedule": layout.schedule.code,
        "micro_batches": _micro_batches(rows, dp * layout.mbs),
        "zero": default_zero(problem) if layout.zero is None else layout.zero,
        "recompute": RECOMPUTE_CODES.index(layout.recompute.kind),
        "sequence_parallel": int(layout.sequence_parallel),
        "cp_kind": CP_KIND_CODES.index(layout.cp_kind),
        "offload_optimizer_percent": round(100 * layout.offload_optimizer),
        "explicit_split": 0,
        "devices": devices,
    }


def _micro_batches(rows: int, rows_at_once: int) -> int:
    """The count whose batch is nearest to the wanted rows."""
    return (2 * rows + rows_at_once) // (2 * rows_at_once)


def group_devices(problem: Problem, names: tuple[str, ...] | None) -> int:
    """Devices of the named groups, of all groups when none is named."""
    groups = [group for group in problem.cluster.groups if names is None or group.name in names]
    return sum(group.nodes * group.devices_per_node for group in groups)
