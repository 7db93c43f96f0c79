"""What this version of the solver does not honour yet is refused here, by pointer, never ignored."""

from __future__ import annotations

from typing import Final

from solver.problem.cluster import Cluster
from solver.problem.findings import Findings
from solver.problem.model import MODEL_FORMS, Model
from solver.problem.options import Constraints
from solver.problem.pointers import Path
from solver.problem.problem import Problem
from solver.problem.workload import Workload

#: Frameworks and versions that have a rule set (the rule sets may not be imported here; a test keeps the two equal).
FRAMEWORKS: Final = {
    "any": ("latest-known",),
    "megatron-core": ("latest-known", "0.20", "0.16", "0.15", "0.14", "0.13", "0.12", "0.11", "0.10"),
}
#: Those of them that can run several modules.
FRAMEWORKS_OF_MODULES: Final = ("any",)
OBJECTIVES: Final = ("step_time", "cost")
OPTIMIZERS: Final = ("adamw", "adam", "adamw_8bit", "lion", "sgd", "custom")
TASKS: Final = ("pretrain", "finetune")
BATCHINGS: Final = ("padded", "packed")
PRECISIONS: Final = ("bf16", "fp16", "fp32", "fp8")
SCHEDULES: Final = (
    "gpipe",
    "1f1b",
    "interleaved",
    "zero_bubble_h1",
    "zero_bubble_h2",
    "zero_bubble_v",
    "dualpipe",
    "dualpipe_v",
)
CP_KINDS: Final = ("ring", "all_to_all")
LATEST: Final = "latest-known"


def check_supported(problem: Problem, findings: Findings) -> None:
    """Note every value of a well-typed problem that cannot be honoured."""
    _check_forms(problem.model, findings)
    _check_workload(problem.workload, findings)
    _check_cluster(problem.cluster, findings)
    _check_constraints(problem.constraints, findings)
    _member(problem.objective.kind, OBJECTIVES, ("objective", "kind"), findings)
    _member(problem.framework.name, tuple(FRAMEWORKS), ("framework", "name"), findings)
    versions = FRAMEWORKS.get(problem.framework.name, (LATEST,))
    _member(problem.framework.version, versions, ("framework", "version"), findings)
    _check_together(problem, findings)
    if problem.running is not None:
        _refuse(("running",), "re-planning is not supported in this version", findings)


def _check_together(problem: Problem, findings: Findings) -> None:
    """One batching at a time, and weights of one width on all groups."""
    batching = problem.workload.batching
    several = len(batching) > 1 and problem.workload.global_batch.tokens is not None
    if several and all(value in BATCHINGS for value in batching):
        _refuse(("workload", "batching"), "one batching at a time is searched in this version", findings, BATCHINGS)
    wide = problem.workload.precision == "fp32"
    for index, group in enumerate(problem.cluster.groups):
        if group.precision is not None and (group.precision == "fp32") != wide:
            message = f"weights of {group.precision} beside {problem.workload.precision} are not supported in this version"
            allowed = tuple(name for name in PRECISIONS if (name == "fp32") == wide)
            _refuse(("cluster", "groups", index, "precision"), message, findings, allowed)


def _refuse(path: Path, message: str, findings: Findings, allowed: tuple[object, ...] | None = None) -> None:
    findings.add(path, "not_supported", message, allowed)


def _member(value: str, allowed: tuple[str, ...], path: Path, findings: Findings) -> None:
    if value not in allowed:
        message = f"{value!r} is not supported in this version; supported: {', '.join(allowed)}"
        _refuse(path, message, findings, allowed)


def _check_forms(model: Model, findings: Findings) -> None:
    if model.layers is not None:
        allowed = tuple(form for form in (*MODEL_FORMS, "modules") if form != "layers")
        _refuse(("model", "layers"), "a model given by layers is not supported in this version", findings, allowed)


def check_parts(problem: Problem, findings: Findings) -> None:
    """Note what cannot be honoured of a completed model: an encoder alone, and several modules where one is expected."""
    model = problem.model
    if model.transformer is not None and (model.transformer.embedding_features or model.transformer.output_features):
        message = "an encoder of features is a module beside a language model"
        _refuse(("model", "transformer"), message, findings)
    if model.modules is not None and problem.framework.name not in FRAMEWORKS_OF_MODULES:
        message = f"{problem.framework.name} has no flags for a module beside the language model in this version"
        _refuse(("framework", "name"), message, findings, FRAMEWORKS_OF_MODULES)


def _check_workload(workload: Workload, findings: Findings) -> None:
    for index, batching in enumerate(workload.batching):
        _member(batching, BATCHINGS, ("workload", "batching", index), findings)
    _member(workload.precision, PRECISIONS, ("workload", "precision"), findings)
    _member(workload.optimizer.name, OPTIMIZERS, ("workload", "optimizer", "name"), findings)
    _member(workload.task.kind, TASKS, ("workload", "task", "kind"), findings)
    _member(workload.software.version, (LATEST,), ("workload", "software", "version"), findings)


def _check_cluster(cluster: Cluster, findings: Findings) -> None:
    for key in ("node_matrix", "profile", "network_trace"):
        if getattr(cluster, key) is not None:
            _refuse(("cluster", key), f"{key} is not supported in this version", findings)
    for index, group in enumerate(cluster.groups):
        path = ("cluster", "groups", index)
        if group.precision is not None:
            _member(group.precision, PRECISIONS, (*path, "precision"), findings)
        for tier_index, tier in enumerate(group.fabric):
            _member(tier.kind, ("switch",), (*path, "fabric", tier_index, "kind"), findings)
            if tier.kind == "switch" and tier.shape is not None:
                findings.add((*path, "fabric", tier_index, "shape"), "conflict", "shape belongs to torus and mesh")


def _check_constraints(constraints: Constraints, findings: Findings) -> None:
    for word in ("offload_activations", "offload_parameters"):
        if constraints.fixed.get(word, 0) != 0:
            _refuse(("constraints", "fixed", word), f"{word} other than 0 is not supported in this version", findings, (0,))
        if any(value != 0 for value in constraints.allowed.get(word, ())):
            _refuse(("constraints", "allowed", word), f"{word} other than 0 is not supported in this version", findings, (0,))
    for kind in ("fixed", "allowed"):
        if "groups" in getattr(constraints, kind):
            message = "groups cannot be constrained in this version; leave the group out of the cluster"
            _refuse(("constraints", kind, "groups"), message, findings)
    for word, supported in (("schedule", SCHEDULES), ("cp_kind", CP_KINDS)):
        values: list[tuple[Path, object]] = [(("constraints", "fixed", word), constraints.fixed.get(word))]
        values += [(("constraints", "allowed", word, i), v) for i, v in enumerate(constraints.allowed.get(word, ()))]
        for path, value in values:
            if isinstance(value, str) and value not in supported:
                _refuse(path, f"{value!r} is not supported in this version", findings, supported)
