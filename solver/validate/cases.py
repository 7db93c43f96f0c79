"""A row as the question it asks the evaluator: a normalised problem and a layout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from solver.dimensions.words import expand_uniform
from solver.errors import InvalidProblem
from solver.frameworks import get_rule_set
from solver.layout import Layout, UniformLayout
from solver.layout_parse import parse_layout
from solver.problem import Problem, normalise, parse_problem
from solver.validate.frameworks import FrameworkUse, framework_use, kernels, optimizer, precision, profile_name
from solver.validate.machines import Machine, machine_of
from solver.validate.models import model_document, with_assumed_sizes
from solver.validate.refusal import Refused
from solver.validate.rows import Row, known, without_measurements

GROUP_OF_SHARDS = re.compile(r"zero1 group (\d+)")
SCORES_ONLY = ("core_attention", "core_attn")
EQUAL_SPLIT_RULES = ("S12",)
"""rules about chunks of equal length, which a stated split answers itself"""
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
    row = with_assumed_sizes(row, notes)
    chosen = profile or profile_name(row, use, machine, notes)
    document = _problem_document(row, use, machine, chosen)
    try:
        problem = _parsed(document, {} if parsed is None else parsed)
        words = parse_layout(_words(row, machine, notes))
        assert isinstance(words, UniformLayout), "classical words"
        layout = _legal_layout(problem, words, row, use)
    except InvalidProblem as error:
        raise Refused("; ".join(item.message for item in error.errors)) from error
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
            "software": {"name": profile},
            "kernels": kernels(row, use),
        },
        "cluster": {"groups": list(machine.groups)},
        "framework": "any",
    }


def _words(row: Row, machine: Machine, notes: list[str]) -> dict[str, Any]:
    """Classical words of the row's layout."""
    replica = known(row.tp) * known(row.pp) * known(row.cp)
    if known(row.gpus) % replica or (row.dp is not None and row.dp * replica != row.gpus):
        raise Refused(f"tp {row.tp} x pp {row.pp} x cp {row.cp} x dp {row.dp} is not {row.gpus} devices")
    words: dict[str, Any] = {name: getattr(row, name) for name in ("tp", "pp", "cp", "ep", "vpp", "mbs", "gbs")}
    names = [group["name"] for group in machine.groups]
    return {
        **words,
        **({"groups": names} if len(names) > 1 else {}),
        "dp": known(row.gpus) // replica,
        "zero": row.zero_stage,
        "sequence_parallel": bool(row.sp) and known(row.tp) > 1,
        "recompute": recompute_word(row.recompute or "none", notes),
    }


def recompute_word(text: str, notes: list[str]) -> dict[str, Any]:
    """`none`, `full`, or selective: the scores alone, or the module set that the model prices."""
    kind, _, modules = text.partition(":")
    if kind in ("none", "full"):
        return {"kind": kind}
    if kind != "selective":
        raise Refused(f"recompute {text!r} is not understood")
    if modules.strip() in SCORES_ONLY:
        return {"kind": "selective", "modules": ["core_attn"]}
    notes.append(f"recompute {text} priced as selective recompute of the cheap large tensors")
    return {"kind": "selective"}


def _legal_layout(problem: Problem, words: UniformLayout, row: Row, use: FrameworkUse | None) -> Layout:
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    split = _layer_split(row, use)
    skipped = EQUAL_SPLIT_RULES if split else ()
    violations = tuple(item for item in rules.violations(problem, words) if item.rule not in skipped)
    if not violations:
        layout = expand_uniform(problem, words, split, _copies(row))
        violations = rules.violations(problem, layout) if split else ()
        if not violations:
            return layout
    raise Refused("; ".join(violation.message for violation in violations))


def _layer_split(row: Row, use: FrameworkUse | None) -> list[int] | None:
    """Layers per chunk where embedding and head count as layers: the first and the last chunk hold one less."""
    layers, stages = known(row.layers), known(row.pp)
    total, chunks = layers + 2, stages * known(row.vpp)
    if use is None or not use.embedding_counts_as_layer or stages < 2 or layers % chunks == 0 or total % chunks:
        return None
    return [total // chunks - (index in (0, chunks - 1)) for index in range(chunks)]


def _copies(row: Row) -> int:
    """Copies of a shard group: hybrid sharding keeps it in a node, `zero1 group N` names its size."""
    tp = known(row.tp)
    ranks = known(row.gpus) // (tp * known(row.pp))
    text = (row.sharding or "").lower()
    named = GROUP_OF_SHARDS.search(text)
    size = int(named.group(1)) if named else ranks
    if text.startswith("hsdp"):
        size = max(1, (row.gpus_per_node or ranks) // tp)
    return ranks // size if 0 < size <= ranks and ranks % size == 0 else 1
