"""Pipelines: how layers divide over stages, what interleaving needs, where multi-token prediction goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.megatron_core.versions import ACCOUNT_FLAGS, MULTI_TOKEN_PREDICTION
from solver.frameworks.predicates import always, balanced_split
from solver.frameworks.rules import Bools, Columns, Rule
from solver.layout import SCHEDULE_KINDS, Layout
from solver.plan import Violation
from solver.problem.problem import Problem

SCHEDULES: Final = ("1f1b", "interleaved")


def _schedule_is_known(_: Facts, columns: Columns) -> Bools:
    return np.isin(columns["schedule"], [SCHEDULE_KINDS.index(kind) for kind in SCHEDULES])


def _schedule_hint(_: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    return {"schedule": ["interleaved" if row["vpp"] > 1 else "1f1b"]}


def _split_hint(facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    """A split that a layout string can carry, layers per (virtual) stage in pipeline order."""
    chunks = row["pp"] * row["vpp"]
    return {"layers_per_stage": balanced_split(facts.layers, chunks)} if chunks <= facts.layers else {}


def _predictions_have_rotary_positions(facts: Facts, columns: Columns) -> Bools:
    return always(columns) if not facts.mtp_layers or facts.learned_positions is None else ~always(columns)


def _no_predictions(facts: Facts, columns: Columns) -> Bools:
    return always(columns) if not facts.mtp_layers else ~always(columns)


def predictions_follow_all_layers(problem: Problem, layout: Layout) -> Iterator[Violation]:
    """MC19: E first, L last, one virtual stage with all m, after every t, in the last chunk of its rank."""
    holders = [index for index, stage in enumerate(layout.stages) if "mtp" in stage.holds]
    if not problem.transformer.mtp_layers or len(holders) != 1:
        return
    behind = [stage.chunks[-1] for stage in layout.stages[holders[0] + 1 :]]
    if any(last >= first for first, last in behind):
        text = f"stage {holders[0]} holds the multi-token prediction layers, but layers follow in later stages"
        yield Violation(rule="MC19", severity="refused", message=text, values={"mtp": list(holders)},
                        nearest={"mtp": [layout.pp - 1]}, fires=("config",))  # fmt: skip


def uneven_is_not_interleaved(problem: Problem, layout: Layout) -> Iterator[Violation]:
    """MC16 before release 0.11: other numbers of layers on the first or the last stage exclude virtual stages."""
    counts = [len(stage.layers) for stage in layout.stages]
    if layout.vpp > 1 and len(set(counts)) > 1:
        text = f"stages of {counts} layers do not go with vpp {layout.vpp} before release 0.11"
        yield Violation(rule="MC16", severity="refused", message=text, values={"layers": list(counts), "vpp": layout.vpp},
                        nearest={"vpp": [1]}, fires=("build",))  # fmt: skip


RULES: Final = (
    Rule(
        "MC14", "silently_changed", ("pp", "vpp"), "{layers} layers do not divide over pp {pp} x vpp {vpp}: the rest is dropped",
        holds.layers_divide_unless_split_explicitly, _split_hint, fires=("build",), until=ACCOUNT_FLAGS,
    ),
    Rule(
        "MC14", "refused", ("pp", "vpp"),
        "{layers} layers do not divide over pp {pp} x vpp {vpp}; older releases drop layers silently",
        holds.layers_divide_unless_split_explicitly, _split_hint, fires=("arguments", "build"), since=ACCOUNT_FLAGS,
    ),
    Rule("MC20", "refused", ("vpp", "pp"), "vpp {vpp} needs pp > 1, pp is {pp}", holds.interleaving_has_stages,
         fires=("arguments",)),
    Rule(
        "MC21", "refused", ("micro_batches", "vpp"),
        "interleaving passes groups of pp {pp} micro-batches, a replica has {micro_batches}",
        holds.interleaving_has_micro_batches, fires=("first_step",),
    ),
    Rule("MC44", "refused", (), "multi-token prediction came with release 0.12", _no_predictions,
         fires=("arguments",), until=MULTI_TOKEN_PREDICTION),
    Rule("MC44", "refused", (), "multi-token prediction does not go with learned positions", _predictions_have_rotary_positions,
         fires=("arguments",), since=MULTI_TOKEN_PREDICTION),
    Rule("CAP-layers", "refused", ("pp", "vpp"), "{layers} layers do not fill pp {pp} x vpp {vpp} chunks",
         holds.every_chunk_has_layers),
    Rule("CAP-schedule", "refused", ("vpp",), "schedule {schedule} is not available", _schedule_is_known, _schedule_hint),
)  # fmt: skip
