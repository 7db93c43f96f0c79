"""A row as the question it asks the evaluator: a normalised problem and a layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from solver.errors import InvalidProblem
from solver.layout import Layout
from solver.problem import Problem, normalise, parse_problem
from solver.validate.frameworks import FrameworkUse, assumptions, framework_use, kernels, optimizer, precision, profile_name
from solver.validate.layouts import legal_layout
from solver.validate.machines import Machine, machine_of
from solver.validate.models import model_document, with_assumed_sizes
from solver.validate.refusal import Refused
from solver.validate.rows import Row, without_measurements

BALANCED = 1.0
"""published benchmarks of experts balance the routing"""
NOT_PREDICTED_TASKS = ("sft", "lora")


@dataclass(frozen=True)
class Case:
    """`problem` is normalised, `layout` legal in it; `cluster_name` and `profile` are what the constants hang on."""

    row: Row
    document: dict[str, Any]
    problem: Problem
    layout: Layout
    profile: str
    cluster_name: str | None
    notes: tuple[str, ...]

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Names of the kinds of device."""
        return tuple(group.device.name for group in self.problem.cluster.groups)

    @cached_property
    def sharing_key(self) -> str:
        """Equal for cases whose operators cost the same: everything but the batch and the number of nodes."""
        workload = {name: value for name, value in self.document["workload"].items() if name != "global_batch"}
        groups = [{name: value for name, value in g.items() if name != "nodes"} for g in self.document["cluster"]["groups"]]
        return repr((self.document["model"], workload, groups))


def case_of(row: Row, parsed: dict[str, Problem] | None = None, profile: str | None = None) -> Case:
    """The case of a row all of whose cells are known; raises Refused. Measured columns, ids and notes are not read.

    `parsed` keeps problems by their document from call to call; `profile` replaces the one of the framework.
    """
    published, row = row, without_measurements(row)
    _refuse_unpredictable(row)
    machine = machine_of(row)
    use = framework_use(row)
    notes = list(machine.notes)
    row = with_assumed_sizes(row, notes, machine.cluster.heads if machine.cluster else {})
    chosen = profile or profile_name(row, use, machine, notes)
    document = _problem_document(row, use, machine, chosen)
    try:
        problem = _parsed(document, {} if parsed is None else parsed)
        layout = legal_layout(problem, row, use, [group["name"] for group in machine.groups], notes)
    except InvalidProblem as error:
        raise Refused(str(error)) from error
    return Case(
        row=published,
        document=document,
        problem=problem,
        layout=layout,
        profile=chosen,
        cluster_name=machine.cluster.name if machine.cluster else None,
        notes=tuple(notes),
    )


def _parsed(document: dict[str, Any], known_problems: dict[str, Problem]) -> Problem:
    key = repr(document)
    if key not in known_problems:
        known_problems[key] = normalise(parse_problem(document))
    return known_problems[key]


def _refuse_unpredictable(row: Row) -> None:
    if row.task in NOT_PREDICTED_TASKS:
        raise Refused(f"task {row.task}: packed short sequences or frozen weights, of which the row says too little")
    missing = [name for name in ("tp", "pp", "mbs", "gbs", "vpp", "recompute", "zero_stage") if getattr(row, name) is None]
    if missing:
        raise Refused(f"not stated: {', '.join(missing)}")


def _problem_document(row: Row, use: FrameworkUse | None, machine: Machine, profile: str) -> dict[str, Any]:
    return {
        "model": model_document(row),
        "workload": {
            "sequence_lengths": {"constant": row.seq_len},
            "global_batch": {"sequences": row.gbs},
            "precision": precision(row),
            "optimizer": optimizer(row, use),
            "software": {"name": profile, "assumptions": assumptions(row)},
            "kernels": kernels(row, use),
            "expert_imbalance": BALANCED,
        },
        "cluster": {"groups": list(machine.groups)},
        "framework": "any",
    }
