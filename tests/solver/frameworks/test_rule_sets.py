"""Conformance of every rule set found: arrays agree with single layouts, nearest values are legal, ids are unique."""

from __future__ import annotations

import time

import numpy as np
import pytest

from solver.errors import InvalidProblem
from solver.frameworks import framework_names, get_rule_set, read_facts
from solver.frameworks.nearest import nearest_values
from solver.frameworks.rules import CP_KIND_CODES, RECOMPUTE_CODES, complete_columns
from solver.layout import SCHEDULE_KINDS
from solver.problem import Problem
from tests.solver.frameworks.problems import problem, qwen2_5_7b, qwen3_30b_a3b, uniform_model

NAMES = framework_names()
SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16])


def columns(count: int, seed: int = 7) -> dict[str, np.ndarray]:
    draw = np.random.Generator(np.random.PCG64(seed))
    names = ("tp", "cp", "dp", "pp", "ep", "etp", "vpp", "mbs", "micro_batches")
    found = {name: draw.choice(SIZES, count) for name in names}
    found |= {"zero": draw.integers(0, 4, count), "sequence_parallel": draw.integers(0, 2, count)}
    found |= {"cp_kind": draw.integers(0, 2, count), "offload_optimizer_percent": 25 * draw.integers(0, 5, count)}
    return found


def problems() -> list[Problem]:
    return [
        problem(qwen2_5_7b(), nodes=4),
        problem(qwen3_30b_a3b(), nodes=4, rows=96),
        problem(uniform_model(12, 24, 8, 3072), nodes=4),
    ]


def test_rule_sets_are_discovered() -> None:
    assert {"any", "megatron-core"} <= set(NAMES)
    with pytest.raises(InvalidProblem, match="no rules for 'verl'"):
        get_rule_set("verl")
    with pytest.raises(InvalidProblem, match=r"megatron-core 0\.1"):
        get_rule_set("megatron-core", "0.1")


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_fields_are_columns(name: str) -> None:
    rule_set = get_rule_set(name)
    ids = [rule.id for rule in rule_set.rules]
    assert len(ids) == len(set(ids))
    facts = read_facts(problems()[0])
    full = complete_columns({}, facts)
    for rule in rule_set.rules:
        assert set(rule.fields) <= set(full), rule.id
        assert rule.text.format(**(facts.words() | {field: 1 for field in full}))
        assert rule.ok(facts, full).dtype == np.bool_


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_arrays_agree_with_single_layouts(name: str, number: int) -> None:
    asked, rule_set, drawn = problems()[number], get_rule_set(name), columns(4000)
    together = rule_set.legal(asked, drawn)
    alone = [bool(rule_set.legal(asked, {field: values[i] for field, values in drawn.items()})[0]) for i in range(300)]
    assert together[:300].tolist() == alone


#: Columns whose values are answered by name.
_KINDS = {"cp_kind": CP_KIND_CODES, "recompute": RECOMPUTE_CODES, "schedule": SCHEDULE_KINDS}


@pytest.mark.parametrize("name", NAMES)
def test_nearest_values_obey_the_rule(name: str) -> None:
    rule_set = get_rule_set(name)
    for asked in problems():
        facts = read_facts(asked)
        drawn = complete_columns(columns(60, seed=3), facts)
        for at in range(60):
            row = {field: int(values[at]) for field, values in drawn.items()}
            for rule in rule_set.rules:
                if rule.ok(facts, complete_columns(row, facts))[0]:
                    continue
                for field, values in nearest_values(rule, rule_set.rules, facts, row).items():
                    for value in values if field in row and isinstance(values, list) else ():
                        number = _KINDS[field].index(value) if isinstance(value, str) else int(value)
                        trial = {other: kept for other, kept in row.items() if other != "step_rows"} | {field: number}
                        assert rule.ok(facts, complete_columns(trial, facts))[0], (rule.id, field, value)


@pytest.mark.parametrize("name", NAMES)
def test_a_million_layouts_take_well_under_a_second(name: str) -> None:
    asked, rule_set, drawn = problems()[1], get_rule_set(name), columns(1_000_000)
    rule_set.legal(asked, columns(1000))
    spent = []
    for _ in range(3):
        started = time.process_time()
        rule_set.legal(asked, drawn)
        spent.append(time.process_time() - started)
    assert min(spent) < 1.5
