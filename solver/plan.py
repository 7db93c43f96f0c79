"""What is answered: plans, certificates, results and evaluations, in the shape of DESIGN 3.2 and 3.7.

Quantities carry their unit in the name; a field whose value is its `OMIT` default is left out of the document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import rfc8785
from pydantic import BeforeValidator, Field, JsonValue

from solver.layout import (
    OMIT,
    Boundary,
    ContextParallel,
    Count,
    DeviceRange,
    GradientSync,
    Layout,
    MeshAxis,
    Module,
    Number,
    Offload,
    Override,
    Part,
    Recompute,
    Record,
    Schedule,
    Shard,
    ShardPlan,
    Stage,
    Strategy,
    UniformLayout,
)
from solver.layout_parse import parse_layout, refuse_unsupported

__all__ = [
    "Alternative",
    "Boundary",
    "Cells",
    "Certificate",
    "Change",
    "ContextParallel",
    "Cost",
    "DeviceRange",
    "Evaluation",
    "Explanation",
    "Exposure",
    "FrameworkName",
    "GradientSync",
    "Infeasible",
    "Layout",
    "MemoryEntry",
    "MeshAxis",
    "Module",
    "Offload",
    "Override",
    "Pareto",
    "ParetoPoint",
    "Part",
    "Plan",
    "Prediction",
    "Progress",
    "ProofStep",
    "Recompute",
    "Relaxation",
    "Result",
    "Schedule",
    "Shard",
    "ShardPlan",
    "Space",
    "Stage",
    "Strategy",
    "TimeBreakdown",
    "UniformLayout",
    "Versions",
    "Violation",
    "parse_layout",
    "plan_id",
    "refuse_unsupported",
]


def _plain(value: object) -> object:
    """Tuples as lists and array scalars as numbers, so that Python callers may give what they have."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    item = getattr(value, "item", None)
    return item() if callable(item) else value


Json = Annotated[JsonValue, BeforeValidator(_plain)]
MemoryVerdict = Literal["safe", "fits", "no"]
Interval = tuple[Number, Number]
"""`[low, high]`, the central 90 %."""


class Versions(Record):
    solver: str
    cost_model: str
    data: str


class Exposure(Record):
    """Seconds of one axis' communication that the step waits for, and that it hides behind computing."""

    exposed: Number
    hidden: Number


class TimeBreakdown(Record):
    """Seconds of the rank that ends last; all but `hidden` add up to the step."""

    compute: Number
    communication: dict[str, Exposure]
    bubble: Number
    imbalance: Number
    optimizer: Number


class MemoryEntry(Record):
    """Bytes of the worst rank of one part: items sum to `allocated`, + `allocator` = `reserved`, + `context` = `device`.

    `limit` = `capacity` x (1 - reserve); `host` is what the ranks on one node keep in its memory.
    """

    module: str = "model"
    stage: Count
    group: str
    items: dict[str, Number]
    allocated: Number
    allocator: Number
    reserved: Number
    context: Number
    device: Number
    device_interval: Interval
    limit: Number
    capacity: Number
    host: Number | None = None
    verdict: MemoryVerdict


class Cost(Record):
    per_1e9_tokens: Number
    currency: str


class Prediction(Record):
    step_time_s: Number
    step_time_interval_s: Interval
    tokens_per_s: Number
    tokens_per_s_per_device: Number
    mfu: Number
    mfu_convention: str
    padding_fraction: Number = 0.0
    time_breakdown_s: TimeBreakdown
    memory_bytes: tuple[MemoryEntry, ...]
    verdict: MemoryVerdict
    cost: Cost | None = None
    energy_joules: Number | None = None
    provenance: dict[str, Literal["measured", "fitted", "analytical"]]


class Plan(Record):
    """Immutable; `id` is `plan_id` of {model, workload, cluster, framework, layout, versions}."""

    id: str = Field(pattern=r"^[0-9a-f]{64}$")
    layout: Layout
    prediction: Prediction
    expressible_in: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: Versions


class Alternative(Record):
    plan_id: str
    summary: str
    step_time_s: Number
    slower_by_fraction: Number
    tied: bool
    verdict: MemoryVerdict
    why: str


class ParetoPoint(Record):
    plan_id: str
    step_time_s: Number
    cost_per_1e9_tokens: Number | None = None
    memory_headroom_bytes: Number


class Pareto(Record):
    partial: bool
    points: tuple[ParetoPoint, ...]


class Cells(Record):
    """How the cells of the space were closed; the four ways add up to `total`."""

    total: Count
    bound: Count
    infeasible: Count
    evaluated: Count
    open: Count


class FrameworkName(Record):
    name: str
    version: str


class Space(Record):
    """Option grid of each dimension and the number of layouts, counted before searching."""

    dimensions: dict[str, tuple[Json, ...]]
    framework: FrameworkName
    count: Count


class ProofStep(Record):
    cell: Json
    closed_by: Literal["bound", "infeasible", "evaluated", "open"]
    value: Number | None


class Certificate(Record):
    lower_bound_s: Number | None
    lower_bound_per_1e9_tokens: Number | None = None
    lower_bound_joules: Number | None = None
    lower_bound_devices: Number | None = None
    gap: Number | None
    cells: Cells
    space: Space
    sampling_interval_s: Interval | None = None
    proof: tuple[ProofStep, ...] | None = None


class Change(Record):
    """A value to put at a pointer of the problem."""

    pointer: str
    value: Json


class Relaxation(Record):
    changes: tuple[Change, ...]
    text: str
    plan_id: str
    step_time_s: Number
    verdict: MemoryVerdict


class Infeasible(Record):
    binding: str
    text: str
    relaxations: tuple[Relaxation, ...] = ()


class Explanation(Record):
    code: str
    text: str


class Result(Record):
    """`optimal` means gap <= 1e-6; `unknown` means stopped before any plan."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    plan: Plan | None = None
    alternatives: Annotated[tuple[Alternative, ...], OMIT] = ()
    pareto: Pareto | None = None
    certificate: Certificate
    infeasible: Infeasible | None = None
    explanation: Annotated[tuple[Explanation, ...], OMIT] = ()
    stopped_by: Literal["proof", "target_gap", "work", "time", "cancelled"]
    reproducible: bool


class Violation(Record):
    """A broken rule, the values that break it and, per field, the nearest legal values.

    `refused`: the framework stops; `silently_changed`: it runs something else; `changed`: it changes the value and says so.
    `fires`: which of its checks notices (arguments, config, build, first_step), none when it is ours.
    """

    rule: str
    severity: Literal["refused", "silently_changed", "changed"]
    message: str
    values: dict[str, Json] = Field(default_factory=dict)
    nearest: dict[str, Json] = Field(default_factory=dict)
    fires: Annotated[tuple[str, ...], OMIT] = ()


class Evaluation(Record):
    verdict: Literal["ok", "illegal", "does_not_fit"]
    violations: tuple[Violation, ...] = ()
    plan: Plan | None


class Progress(Record):
    """Closed and all cells; the objective of the best plan so far and the least open bound, in the objective's unit."""

    done: Count
    total: Count
    incumbent: Number | None
    bound: Number | None
    gap: Number | None


def plan_id(context: Mapping[str, Any], layout: Layout, versions: Versions) -> str:
    """SHA-256 of the RFC 8785 JSON of {model, workload, cluster, framework} of the normal form, the layout and the versions."""
    document = {name: context[name] for name in ("model", "workload", "cluster", "framework")}
    document["layout"] = layout.model_dump(mode="json")
    document["versions"] = versions.model_dump(mode="json")
    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()
