"""Option grids of the search: which degrees, micro-batches and recompute mixtures are considered, before any combination."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from solver.cost import columns as col
from solver.cost.operators import selective_modules
from solver.cost.table import CostModel
from solver.frameworks import RuleSet
from solver.layout import SCHEDULE_KINDS, TWO_CHUNKS, Schedule
from solver.problem import Problem

MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)
LEAST_TOKENS_PER_CONTEXT_HALF = 64
"""context parallelism is not tried below this many tokens per half of a rank's zig-zag share"""
MOST_UNEVEN_CHUNKS = 8
"""virtual stages per rank are tried up to this number when they do not divide the layers, beyond it only when they do"""
OFFLOAD_PERCENTS = (0, 25, 50, 75, 100)
CP_KINDS = ("ring", "all_to_all")
EVEN, BALANCED, TIMED = 0, 1, 2
SPLITS = ("even", "balanced", "timed")
"""equal counts; least heaviest stage by FLOPs, filled from the end; by seconds at the cell's own point, first stage full too"""


@dataclass(frozen=True, slots=True)
class StateVariant:
    """ZeRO level, and whether a shard group stays inside a node (HSDP) or spans all replicas."""

    zero: int
    inside_node: bool


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Global batch in rows: the wanted one, the least and most tolerated, and the only ones allowed if any are listed."""

    wanted: int
    least: int
    most: int
    listed: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Grid:
    """Options per dimension. `modes` are (kept layers' option, first layers' option) of a stage; equal ones treat all alike."""

    tp: tuple[int, ...]
    cp: tuple[int, ...]
    cp_kind: tuple[int, ...]
    ep: tuple[int, ...]
    etp: tuple[int, ...]
    mbs: tuple[int, ...]
    vpp_allowed: tuple[int, ...] | None
    pp_allowed: tuple[int, ...] | None
    dp_allowed: tuple[int, ...] | None
    sequence_parallel: tuple[bool, ...]
    states: tuple[StateVariant, ...]
    modes: tuple[tuple[int, int], ...]
    same_count: bool
    offload_percent: tuple[int, ...]
    splits: tuple[int, ...]
    batch: BatchRange
    schedules: tuple[str, ...]
    ragged_interleaving: bool
    tensor_parallel_only: bool
    """every stage must be sequence parallel, so tp is at least 2"""

    def allows_chunks(self, vpp: int) -> bool:
        """Whether so many virtual stages per rank are among the wanted ones."""
        return self.vpp_allowed is None or vpp in self.vpp_allowed

    def one_chunk_schedules(self, stages: int) -> list[int]:
        """Codes of schedules with one chunk per rank; on a single stage they do the same, so the first stands for all."""
        if not self.allows_chunks(1):
            return []
        kinds = [kind for kind in SCHEDULE_KINDS if kind in self.schedules and kind not in (*TWO_CHUNKS, "interleaved")]
        return [SCHEDULE_KINDS.index(kind) for kind in (kinds if stages > 1 else kinds[:1])]


def option_grid(model: CostModel, rules: RuleSet) -> Grid:
    """The grid of a problem under a framework's capabilities and the user's constraints."""
    problem = model.problem
    limits = _Limits(problem)
    capabilities = rules.capabilities
    experts = max(
        (kind.mlp.experts for kind in model.architecture.kinds if kind.mlp is not None and kind.mlp.kind == "moe"), default=1
    )
    tp = limits.keep("tp", _tensor_degrees(model))
    row_tokens = model.scenarios.row_tokens
    cp = [1] + [
        2**k
        for k in range(1, 20)
        if row_tokens % (2 ** (k + 1)) == 0 and row_tokens >= 2 ** (k + 1) * LEAST_TOKENS_PER_CONTEXT_HALF
    ]
    ep = [degree for degree in _divisors(experts)]
    etp = sorted({1, *(degree for degree in tp if experts > 1)}) if capabilities.expert_tensor_parallel else [1]
    kinds = tuple(CP_KINDS.index(kind) for kind in capabilities.cp_kinds if kind in CP_KINDS)
    states = [StateVariant(zero, False) for zero in capabilities.zero_levels]
    states += [StateVariant(zero, True) for zero in capabilities.zero_levels if zero >= 1]
    offload = limits.percents("offload_optimizer", capabilities.offload_optimizer_grid)
    splits = (EVEN, BALANCED, TIMED) if capabilities.uneven_layers == "any" else (EVEN,)
    return Grid(
        tp=tuple(tp),
        cp=tuple(limits.keep("cp", cp)),
        cp_kind=tuple(kind for kind in kinds if limits.allows("cp_kind", CP_KINDS[kind])) or (0,),
        ep=tuple(limits.keep("ep", ep)),
        etp=tuple(limits.keep("etp", etp)),
        mbs=tuple(limits.keep("mbs", list(MICRO_BATCH_SIZES))),
        vpp_allowed=limits.listed("vpp"),
        pp_allowed=limits.listed("pp"),
        dp_allowed=limits.listed("dp"),
        sequence_parallel=tuple(flag for flag in (True, False) if limits.allows("sequence_parallel", flag))[:1] or (True,),
        states=tuple(state for state in states if limits.allows("zero", state.zero)),
        modes=_modes(limits, rules, selective_modules(problem)),
        same_count=capabilities.per_layer_recompute == "per_stage_count",
        offload_percent=offload,
        splits=splits,
        batch=_batch_range(model, limits),
        schedules=limits.words("schedule", capabilities.schedules),
        ragged_interleaving=capabilities.ragged_interleaving,
        tensor_parallel_only=not limits.allows("sequence_parallel", False),
    )


class _Limits:
    """`constraints.fixed` and `.allowed`, both as the set of values a word may take."""

    def __init__(self, problem: Problem) -> None:
        constraints = problem.constraints
        self.values: dict[str, tuple[Any, ...]] = {name: tuple(values) for name, values in constraints.allowed.items()}
        for name, value in constraints.fixed.items():
            self.values[name] = (value,)

    def allows(self, name: str, value: Any) -> bool:
        return name not in self.values or value in self.values[name]

    def listed(self, name: str) -> tuple[int, ...] | None:
        return tuple(int(value) for value in self.values[name]) if name in self.values else None

    def keep(self, name: str, options: list[int]) -> list[int]:
        """Options of the grid that are allowed; a value the user names himself is tried even when it is off the grid."""
        if name not in self.values:
            return options
        return sorted({int(value) for value in self.values[name]})

    def percents(self, name: str, grid: tuple[float, ...]) -> tuple[int, ...]:
        return tuple(round(100 * value) for value in sorted(grid) if self.allows(name, value)) or (0,)

    def words(self, name: str, options: tuple[str, ...]) -> tuple[str, ...]:
        def word(value: Any) -> str:
            return str(value.get("kind")) if isinstance(value, dict) else str(value)

        if name not in self.values:
            return options
        allowed = {word(value) for value in self.values[name]}
        return tuple(option for option in options if option in allowed)


def _modes(limits: _Limits, rules: RuleSet, modules: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Recompute mixtures: the fewest first layers of a stage get the second option, the others the first.

    Rebuilding the attention core only pays when the scores are materialised; with a flash kernel `selective` drops cheap tensors.
    """
    selective = col.OPTION_CORE_ATTENTION if modules == ("core_attn",) else col.OPTION_SELECTIVE
    option_of = {"none": col.OPTION_NONE, "selective": selective, "full": col.OPTION_FULL}
    options = [option_of[word] for word in limits.words("recompute", ("none", "selective", "full"))]
    alike = [(option, option) for option in options]
    freedom = rules.capabilities.per_layer_recompute
    if freedom == "none" or len(options) == 1:
        return tuple(alike)
    if freedom == "per_stage_count":
        block = [(col.OPTION_NONE, col.OPTION_FULL)] if {col.OPTION_NONE, col.OPTION_FULL} <= set(options) else []
        return tuple(block + [mode for mode in alike if not block or mode[0] not in (col.OPTION_NONE, col.OPTION_FULL)])
    pairs = [(low, high) for low in options for high in options if low < high]
    return tuple(pairs)


def _tensor_degrees(model: CostModel) -> list[int]:
    """Divisors of the heads that fill a node or divide it."""
    heads = 0
    for kind in model.architecture.kinds:
        if kind.attention is not None:
            heads = gcd(heads, kind.attention.heads)
    nodes = {group.devices_per_node for group in model.problem.cluster.groups}
    return [
        degree for degree in _divisors(heads or 1) if all(per_node % degree == 0 or degree % per_node == 0 for per_node in nodes)
    ]


def _batch_range(model: CostModel, limits: _Limits) -> BatchRange:
    wanted = model.scenarios.rows
    tolerance = model.problem.workload.global_batch.tolerance
    least, most = int(np.ceil(wanted * (1.0 - tolerance))), int(np.floor(wanted * (1.0 + tolerance)))
    return BatchRange(wanted=wanted, least=least, most=most, listed=limits.listed("gbs"))


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]


def pipeline_shapes(layers: int, stages: int, grid: Grid) -> list[tuple[int, int]]:
    """(schedule code, chunks per rank) to try for a pipeline depth."""
    shapes = [(schedule, 1) for schedule in grid.one_chunk_schedules(stages)]
    if stages == 1:
        return shapes
    if "interleaved" in grid.schedules:
        counts = [v for v in range(2, layers // stages + 1) if v <= MOST_UNEVEN_CHUNKS or layers % (stages * v) == 0]
        shapes += [(SCHEDULE_KINDS.index("interleaved"), v) for v in counts if grid.allows_chunks(v)]
    for kind in TWO_CHUNKS:
        room = Schedule(kind=kind).pieces(stages, 2) <= layers and (kind != "dualpipe" or stages % 2 == 0)
        if kind in grid.schedules and room and grid.allows_chunks(2):
            shapes.append((SCHEDULE_KINDS.index(kind), 2))
    return shapes


def micro_batch_demands(schedule: int, stages: int, grid: Grid) -> tuple[int, int]:
    """(unit, least): a replica takes a multiple of `unit` micro-batches, at least `least`, under a schedule."""
    kind = SCHEDULE_KINDS[schedule]
    if kind == "interleaved" and not grid.ragged_interleaving:
        return stages, stages
    if kind == "dualpipe":
        return 2, 2 * stages
    return 1, 2 * stages if kind == "dualpipe_v" else 1
