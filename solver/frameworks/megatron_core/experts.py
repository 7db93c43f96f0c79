"""Experts: how they divide, and what they need of the rest."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.megatron_core.versions import BIASED_EXPERTS, EARLY_SEQUENCE_PARALLEL_CHECK, NO_BIASED_EXPERTS
from solver.frameworks.predicates import always
from solver.frameworks.rules import Bools, Columns, Rule


def _sequence_parallel_with_tp(facts: Facts, columns: Columns) -> Bools:
    if not facts.moe:
        return always(columns)
    return np.asarray((columns["tp"] == 1) | (columns["sequence_parallel"] == 1))


def _biased_experts_are_whole(facts: Facts, columns: Columns) -> Bools:
    if not (facts.moe and facts.linear_bias):
        return always(columns)
    return np.asarray(columns["etp"] == 1)


def _no_biased_experts(facts: Facts, columns: Columns) -> Bools:
    return ~always(columns) if facts.moe and facts.linear_bias else always(columns)


def _spread_without_fp16(facts: Facts, columns: Columns) -> Bools:
    return always(columns) if facts.precision != "fp16" else np.asarray(columns["ep"] == 1)


RULES: Final = (
    Rule("MC22", "refused", ("ep", "etp"), "ep {ep} does not divide the {experts} experts; without experts ep and etp are 1",
         holds.experts_split, fires=("arguments", "build")),
    Rule("MC23", "refused", ("sequence_parallel", "tp"), "experts at tp {tp} need sequence parallel", _sequence_parallel_with_tp,
         fires=("config", "first_step"), until=EARLY_SEQUENCE_PARALLEL_CHECK),
    Rule("MC23", "refused", ("sequence_parallel", "tp"), "experts at tp {tp} need sequence parallel", _sequence_parallel_with_tp,
         fires=("first_step",), since=EARLY_SEQUENCE_PARALLEL_CHECK),
    Rule("MC25", "refused", (), "grouped products of experts have no bias before release 0.13", _no_biased_experts,
         fires=("build",), until=NO_BIASED_EXPERTS),
    Rule("MC25", "refused", (), "experts with bias came with release 0.15", _no_biased_experts, fires=("config",),
         since=NO_BIASED_EXPERTS, until=BIASED_EXPERTS),
    Rule("MC25", "refused", ("etp",), "experts with bias need etp 1, it is {etp}", _biased_experts_are_whole, fires=("config",),
         since=BIASED_EXPERTS),
    Rule("MCX-fp16", "refused", ("ep",), "expert parallelism does not go with fp16, ep is {ep}", _spread_without_fp16,
         fires=("arguments",)),
)  # fmt: skip
