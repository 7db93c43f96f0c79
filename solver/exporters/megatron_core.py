"""Plans for Megatron-core: a launch script of `pretrain_gpt.py` with every flag explicit, and the derived numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from solver.errors import FieldError
from solver.exporters.base import Export, Exporter, ExportFile
from solver.exporters.launch_nodes import LaunchNodes, UnlaunchableError, launch_nodes
from solver.exporters.megatron_model import inexpressible_model, model_flags, moe_flags
from solver.exporters.megatron_parallel import (
    data_parallel_flags,
    environment,
    inexpressible_order,
    parallel_flags,
    recompute_flags,
)
from solver.exporters.megatron_script import FlagGroup, script
from solver.exporters.megatron_settings import read_flags, settings_of
from solver.exporters.megatron_training import (
    batch_flags,
    inexpressible_workload,
    kernel_flags,
    optimizer_flags,
    precision_flags,
)
from solver.frameworks import read_facts
from solver.frameworks.megatron_core import RULE_SET, padded_vocab_size
from solver.frameworks.megatron_core.settings_rules import settings_violations
from solver.layout import Layout
from solver.plan import Plan, Violation
from solver.problem.problem import Problem

VERSION = "0.20"

_FIELDS = {
    "CAP-unequal_shares": "stages/0/parts/0/share",
    "CAP-per_stage_degrees": "stages/{stage}/parts/0/mesh",
    "CAP-per_layer_recompute": "stages/0/overrides",
    "CAP-unlike_devices": "stages/0/parts/0/devices",
    "CAP-zero": "stages/0/strategy/shard",
    "CAP-offload": "stages/0/strategy/offload/optimizer",
    "MC19": "stages/{mtp}/holds",
}
"""Field of the layout that a rule is about, where it is not a degree."""


def inexpressible(problem: Problem, layout: Layout) -> tuple[FieldError, ...]:
    """Rules that refuse the layout, and whatever of model, workload and layout has no flag."""
    broken = RULE_SET.violations(problem, layout)
    if broken:
        return tuple(_as_field(violation) for violation in broken)
    return tuple(_without_flag(problem, layout)) or tuple(_broken_by_flags(problem, layout))


def _broken_by_flags(problem: Problem, layout: Layout) -> Iterator[FieldError]:
    """Rules over settings that the flags themselves would break: Megatron refuses in four places, the script passes them all."""
    flags = read_flags(flag for group in _groups(problem, layout) for flag in group.flags)
    world_size = sum(part.device_count for stage in layout.stages for part in stage.parts)
    blackwell = all(_is_blackwell(group.device.name) for group in problem.cluster.groups)
    settings = settings_of(flags, world_size, environment(layout), blackwell=blackwell)
    for violation in settings_violations(settings):
        if violation.severity != "changed":
            yield FieldError("/layout", "not_supported", f"{violation.rule}: {violation.message}", None)


def _is_blackwell(device: str) -> bool:
    return device.startswith(("B200", "B300", "GB200", "GB300", "RTX5", "RTXPRO6000"))


def _as_field(violation: Violation) -> FieldError:
    stage = violation.values.get("stage", 0)
    holders = violation.values.get("mtp")
    field = _FIELDS.get(violation.rule, f"stages/{stage}").format(stage=stage, mtp=holders[0] if isinstance(holders, list) else 0)
    nearest = tuple(f"{name}: {value}" for name, value in violation.nearest.items()) or None
    return FieldError(f"/layout/modules/0/{field}", "not_supported", f"{violation.rule}: {violation.message}", nearest)


def _without_flag(problem: Problem, layout: Layout) -> Iterator[FieldError]:
    asked = problem.framework
    if asked.name == RULE_SET.name and asked.version not in RULE_SET.versions:
        text = f"the export is written for {RULE_SET.name} {VERSION}, not {asked.version}"
        yield FieldError("/framework/version", "not_supported", text, RULE_SET.versions)
    if problem.encoders:
        yield FieldError(
            "/model/modules", "not_supported", "pretrain_gpt.py trains one language model, without a vision tower", None
        )
    yield from inexpressible_model(problem.transformer)
    yield from inexpressible_workload(problem, layout)
    yield from inexpressible_order(layout)
    try:
        launch_nodes(problem, layout)
    except UnlaunchableError as error:
        yield FieldError("/layout/modules/0/stages/0/parts/0/ranks", "not_supported", str(error), None)


def export(problem: Problem, plan: Plan) -> Export:
    """Files of an expressible plan."""
    nodes = launch_nodes(problem, plan.layout)
    derived = _derived(problem, plan.layout, nodes)
    text = script(
        _header(plan, derived, _notes(problem)),
        nodes,
        environment(plan.layout),
        problem.transformer.vocab_size,
        _groups(problem, plan.layout),
    )
    metadata = {
        "plan_id": plan.id,
        "framework": {"name": RULE_SET.name, "version": VERSION},
        "versions": plan.versions.model_dump(mode="json"),
        "derived": derived,
        "nodes": [asdict(run) for run in nodes.runs()],
        "environment": environment(plan.layout),
        "predicted": {
            "step_time_s": plan.prediction.step_time_s,
            "tokens_per_s": plan.prediction.tokens_per_s,
            "memory_verdict": plan.prediction.verdict,
        },
        "notes": _notes(problem),
    }
    files = (
        ExportFile(path="launch.sh", media_type="text/x-shellscript", content=text),
        ExportFile(path="plan.json", media_type="application/json", content=json.dumps(metadata, indent=2) + "\n"),
    )
    command = "bash launch.sh --srun" if len(nodes.nodes) > 1 else "bash launch.sh"
    return Export(framework=RULE_SET.name, version=VERSION, files=files, command=command)


def _derived(problem: Problem, layout: Layout, nodes: LaunchNodes) -> dict[str, Any]:
    stage = layout.stages[0]
    part = stage.parts[0]
    ranks = sum(other.device_count for other in stage.parts)
    experts = part.size("etp") * part.size("ep")
    vocab = problem.transformer.vocab_size
    return {
        "world_size": nodes.world_size,
        "nodes": len(nodes.nodes),
        "data_parallel_size": ranks // (part.size("tp") * part.size("cp")),
        **({"expert_data_parallel_size": ranks // experts} if read_facts(problem).moe else {}),
        "micro_batches_per_replica": part.micro_batches,
        "global_batch_size": layout.global_batch_sequences(),
        "sequence_length": problem.workload.max_sequence_length,
        "vocab_size": vocab,
        "padded_vocab_size": padded_vocab_size(vocab, part.size("tp")),
        "layers_per_virtual_stage": [last - first + 1 for _, _, (first, last) in layout.virtual_stages()],
    }


def _header(plan: Plan, derived: dict[str, Any], notes: list[str]) -> list[str]:
    experts = derived.get("expert_data_parallel_size")
    layers = ", ".join(str(count) for count in derived["layers_per_virtual_stage"])
    return [
        f"Megatron-core launch script, checked against the rules of Megatron-LM {VERSION}.",
        f"Plan {plan.id}",
        f"  (solver {plan.versions.solver}, cost model {plan.versions.cost_model}, data {plan.versions.data})",
        "",
        "Derived numbers (Megatron computes them itself; they must come out the same):",
        f"  world size               {derived['world_size']} on {derived['nodes']} nodes",
        f"  data parallel size       {derived['data_parallel_size']}",
        *([f"  expert data parallel     {experts}"] if experts else []),
        f"  micro-batches a replica  {derived['micro_batches_per_replica']}",
        f"  global batch             {derived['global_batch_size']} sequences of {derived['sequence_length']} tokens",
        f"  padded vocabulary        {derived['padded_vocab_size']} (of {derived['vocab_size']})",
        f"  layers a virtual stage   {layers}",
        f"Predicted: {plan.prediction.step_time_s:.4g} s a step, memory {plan.prediction.verdict}.",
        *(f"Note: {note}" for note in notes),
    ]


def _groups(problem: Problem, layout: Layout) -> list[FlagGroup]:
    model, precision = problem.transformer, problem.workload.precision
    padded = padded_vocab_size(model.vocab_size, layout.stages[0].parts[0].size("tp"))
    groups = [
        FlagGroup(
            "MODEL_ARGS",
            (f"Model; the vocabulary is padded to {padded}.",),
            tuple(model_flags(model, problem.workload.max_sequence_length)),
        ),
        FlagGroup("MOE_ARGS", ("Experts.",), tuple(moe_flags(model, precision))),
        FlagGroup("PARALLEL_ARGS", ("Layout.",), tuple(parallel_flags(problem, layout))),
        FlagGroup("DATA_PARALLEL_ARGS", ("Data parallel: optimizer states and gradients.",), tuple(data_parallel_flags(layout))),
        FlagGroup("RECOMPUTE_ARGS", ("Recompute.",), tuple(recompute_flags(layout))),
        FlagGroup("BATCH_ARGS", ("Batch.",), tuple(batch_flags(problem, layout))),
        FlagGroup("PRECISION_ARGS", ("Precision.",), tuple(precision_flags(problem))),
        FlagGroup("OPTIMIZER_ARGS", ("Optimizer.",), tuple(optimizer_flags(problem, layout))),
        FlagGroup("KERNEL_ARGS", ("Kernels.",), tuple(kernel_flags(problem))),
    ]
    return [group for group in groups if group.flags]


def _notes(problem: Problem) -> list[str]:
    notes = ["Rotary base and scaling, router score function and learning rate do not change the plan: give them in EXTRA_ARGS."]
    if problem.workload.batching == ("packed",) and problem.workload.scenarios is not None:
        notes.append("Packs hold several documents and are priced with attention inside each document only: the data loader must")
        notes.append("pass their boundaries (packed or THD data); over whole packs attention is slower than predicted.")
    return notes


EXPORTER = Exporter(RULE_SET.name, inexpressible, export)
