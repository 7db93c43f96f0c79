"""The search against the oracle: on small random problems the optimum equals that of pricing every layout by itself.

PLANNER_ORACLE_PROBLEMS sets how many problems the long test takes (default 300), PLANNER_ORACLE_FIRST the first seed.
"""

from __future__ import annotations

import os

import pytest

from solver.frameworks import get_rule_set
from solver.plan import Plan, Result
from solver.problem import Problem
from solver.search import search
from solver.search.brute import BruteForce, all_leaves, brute_force, options_of
from tests.oracle.problems import random_problem

FAST = 40
BLOCK = 20
FIRST = int(os.environ.get("PLANNER_ORACLE_FIRST", "0"))
COUNT = int(os.environ.get("PLANNER_ORACLE_PROBLEMS", "300"))
TOLERANCE = 1e-9


def objective_value(problem: Problem, plan: Plan) -> float:
    """Seconds, or seconds x money per hour / 3600 when the cost is asked for."""
    seconds = plan.prediction.step_time_s
    if problem.objective.kind == "step_time":
        return seconds
    price = {group.name: group.price_per_device_hour or 0.0 for group in problem.cluster.groups}
    parts = [part for stage in plan.layout.stages for part in stage.parts]
    return seconds * sum(price[part.group] * part.device_count for part in parts) / 3600.0


def check(seed: int) -> BruteForce:
    """The search of one problem agrees with the oracle in optimum, feasibility, bound and count."""
    problem = random_problem(seed)
    brute = brute_force(problem)
    result = search(problem).result
    assert not result.certificate.cells.open, seed
    assert result.certificate.cells.total == sum(1 for _ in all_leaves(options_of(problem))), seed
    assert result.status == ("infeasible" if brute.value is None else "optimal"), seed
    if brute.value is not None:
        check_plan(seed, problem, result, brute.value)
    return brute


def check_plan(seed: int, problem: Problem, result: Result, best: float) -> None:
    plan = result.plan
    assert plan is not None, seed
    assert objective_value(problem, plan) == pytest.approx(best, rel=TOLERANCE), seed
    if problem.objective.kind == "step_time":
        assert result.certificate.lower_bound_s == pytest.approx(best, rel=TOLERANCE), seed
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    assert not rules.violations(problem, plan.layout), seed
    assert plan.prediction.verdict in ("safe", problem.constraints.memory), seed


@pytest.mark.parametrize("seed", range(FAST))
def test_search_equals_brute_force(seed: int) -> None:
    check(seed)


@pytest.mark.ci
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BLOCK))
def test_search_equals_brute_force_on_many_problems(first: int) -> None:
    seeds = range(first, min(first + BLOCK, FIRST + COUNT))
    wrong = []
    for seed in seeds:
        try:
            check(seed)
        except AssertionError as error:
            wrong.append(f"{seed}: {str(error).splitlines()[0] if str(error) else error!r}")
    assert not wrong, wrong


def test_problems_are_of_every_kind() -> None:
    problems = [random_problem(seed) for seed in range(FAST)]
    assert sum(problem.search.force == "bounds" for problem in problems) == FAST // 4
    assert {problem.framework.name for problem in problems} == {"any", "megatron-core"}
    assert {len(problem.cluster.groups) for problem in problems} == {1, 2, 3}
    assert {problem.objective.kind for problem in problems} == {"step_time", "cost"}
    assert {problem.workload.batching for problem in problems} == {("packed",), ("padded",)}
    assert any(problem.workload.sequence_lengths.counts for problem in problems)
    kinds = {block.mlp.kind for problem in problems for block in problem.transformer.blocks if block.mlp}
    assert kinds == {"dense", "moe"}
