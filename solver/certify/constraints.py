"""Whether a layout obeys the words that the problem fixes or allows; they bind every stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solver.layout import Layout, Part, Stage
from solver.problem.problem import Problem

PART_WORDS = ("tp", "cp", "ep", "etp")


def constraint_findings(problem: Problem, layout: Layout) -> Iterator[str]:
    """One sentence per broken word and stage."""
    constraints = problem.constraints
    demands = [(word, (value,)) for word, value in constraints.fixed.items()] + list(constraints.allowed.items())
    for word, values in demands:
        found = sorted({str(value) for value in _values(layout, word) if value not in values})
        if found:
            yield f"{word} is {', '.join(found)}, allowed: {', '.join(str(value) for value in values)}"
    used = sum(part.device_count for stage in layout.stages for part in stage.parts)
    if constraints.max_devices is not None and used > constraints.max_devices:
        yield f"{used} devices are used, at most {constraints.max_devices} are allowed"


def _values(layout: Layout, word: str) -> Iterator[Any]:
    """Every value a word has on some stage; words without a meaning on that stage are left out."""
    if word in ("pp", "vpp", "mbs"):
        yield getattr(layout, word)
    elif word == "gbs":
        yield layout.global_batch_sequences()
    elif word == "schedule":
        yield layout.schedule.kind
    else:
        for stage in layout.stages:
            yield from _stage_values(stage, word)


def _stage_values(stage: Stage, word: str) -> Iterator[Any]:
    strategy = stage.strategy
    if word == "dp":
        yield sum(part.size("dp") for part in stage.parts)
    elif word in PART_WORDS:
        yield from (part.size(word) for part in stage.parts)
    elif word == "zero":
        if _replicas(stage) > 1:
            yield strategy.shard.zero
    elif word == "sequence_parallel":
        if any(part.size("tp") > 1 for part in stage.parts):
            yield strategy.sequence_parallel
    elif word == "cp_kind":
        if any(part.size("cp") > 1 for part in stage.parts):
            yield strategy.cp_kind
    elif word == "recompute":
        yield from (stage.recompute_of(layer).kind for layer in stage.layers)
    elif word.startswith("offload_"):
        yield getattr(strategy.offload, word.removeprefix("offload_"))


def _replicas(stage: Stage) -> int:
    def ranks(part: Part) -> int:
        return part.size("dp") * part.size("cp")

    return sum(ranks(part) for part in stage.parts)
