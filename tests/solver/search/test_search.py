"""Statements of a search's answer: counts, limits, constraints, and how frameworks and objectives compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import solver
from solver.plan import Progress, Result
from solver.problem import Problem
from solver.search import search
from solver.search.brute import all_leaves, options_of
from tests.oracle.problems import random_problem
from tests.solver.sample_layouts import LLAMA_LIKE, group, sample_model, sample_problem

MIXED = [group("h", "H100-SXM5-80", 1), group("a", "A100-SXM4-80", 1)]
LINK = {"links": [{"between": ["h", "a"], "bytes_per_s_per_node": 5.0e10, "collectives": True}]}


def mixed(framework: str = "any", **fields: Any) -> Problem:
    constraints = {"allowed": {"cp": [1], "mbs": [1, 2], "vpp": [1]}} | fields.pop("constraints", {})
    return sample_problem(groups=MIXED, cluster=LINK, framework=framework, constraints=constraints, **fields)


def step_s(result: Result) -> float:
    assert result.plan is not None
    return result.plan.prediction.step_time_s


@pytest.mark.parametrize("seed", [1, 7, 13, 20])
def test_cells_are_counted_once(seed: int) -> None:
    problem = random_problem(seed)
    cells = search(problem).result.certificate.cells
    assert cells.total == cells.bound + cells.infeasible + cells.evaluated + cells.open
    assert cells.total == sum(1 for _ in all_leaves(options_of(problem)))


def test_the_same_problem_gives_the_same_bytes() -> None:
    one, two = (search(mixed()).result.model_dump_json() for _ in range(2))
    assert one == two


def test_a_framework_with_fewer_layouts_is_never_faster() -> None:
    free, bound = search(mixed()).result, search(mixed("megatron-core")).result
    assert step_s(free) <= step_s(bound) * (1.0 + 1e-9)


def test_more_devices_are_never_slower() -> None:
    alone = search(
        sample_problem(groups=[group("h", "H100-SXM5-80", 1)], constraints={"allowed": {"cp": [1], "mbs": [1, 2], "vpp": [1]}})
    )
    assert step_s(search(mixed()).result) <= step_s(alone.result) * (1.0 + 1e-9)


def test_bounds_and_exhaustion_agree() -> None:
    problem = mixed()
    forced = problem.model_copy(update={"search": problem.search.model_copy(update={"force": "bounds"})})
    assert step_s(search(problem).result) == pytest.approx(step_s(search(forced).result), rel=1e-12)


def test_the_cheapest_plan_costs_no_more_than_the_fastest() -> None:
    fast = search(mixed()).result.plan
    cheap = search(mixed(objective="cost")).result.plan
    assert fast is not None
    assert cheap is not None
    assert fast.prediction.cost is not None
    assert cheap.prediction.cost is not None
    assert cheap.prediction.cost.per_1e9_tokens <= fast.prediction.cost.per_1e9_tokens * (1.0 + 1e-9)
    assert fast.prediction.step_time_s <= cheap.prediction.step_time_s * (1.0 + 1e-9)


def test_what_fits_is_never_slower_than_what_is_safe() -> None:
    safe, fits = (search(mixed(constraints={"memory": memory})).result for memory in ("safe", "fits"))
    assert step_s(fits) <= step_s(safe) * (1.0 + 1e-9)


def test_constraints_bind_the_plan() -> None:
    plan = search(mixed(constraints={"fixed": {"tp": 2, "mbs": 1}, "allowed": {"pp": [2, 4]}, "max_devices": 8})).result.plan
    assert plan is not None
    parts = [part for stage in plan.layout.stages for part in stage.parts]
    assert {part.size("tp") for part in parts} == {2}
    assert plan.layout.mbs == 1
    assert plan.layout.pp in (2, 4)
    assert sum(part.device_count for part in parts) <= 8


def test_a_step_limit_below_the_optimum_is_infeasible() -> None:
    best = step_s(search(mixed()).result)
    below, above = (mixed(constraints={"max_step_time_s": limit * best}) for limit in (0.9, 1.1))
    assert search(below).result.status == "infeasible"
    assert step_s(search(above).result) == pytest.approx(best, rel=1e-12)


def test_a_stopped_search_keeps_a_bound() -> None:
    problem = mixed(search={"force": "bounds"})
    best = step_s(search(problem).result)
    answers = iter([False, True])
    stopped = search(problem, should_stop=lambda: next(answers, True)).result
    assert stopped.status in ("feasible", "unknown", "optimal")
    assert stopped.certificate.lower_bound_s is not None
    assert stopped.certificate.lower_bound_s <= best * (1.0 + 1e-9)
    if stopped.plan is not None:
        assert step_s(stopped) >= best * (1.0 - 1e-9)


def test_a_target_gap_is_kept() -> None:
    best = step_s(search(mixed()).result)
    result = search(mixed(search={"target_gap": 0.2})).result
    assert result.certificate.gap is not None
    assert result.certificate.gap <= 0.2
    assert result.certificate.lower_bound_s is not None
    assert result.certificate.lower_bound_s <= best * (1.0 + 1e-9) <= step_s(result) * (1.0 + 2e-9)


def test_progress_counts_up_to_the_total() -> None:
    seen: list[Progress] = []
    search(mixed(search={"force": "bounds"}), on_progress=seen.append)
    assert seen
    assert [entry.done for entry in seen] == sorted(entry.done for entry in seen)
    assert seen[-1].done == seen[-1].total
    assert seen[-1].gap == pytest.approx(0.0, abs=1e-9)


def test_alternatives_are_slower_and_different() -> None:
    outcome = search(mixed(search={"alternatives": 4}))
    result = outcome.result
    assert result.plan is not None
    ids = [result.plan.id, *(entry.plan_id for entry in result.alternatives)]
    assert len(set(ids)) == len(ids) > 1
    assert set(ids) <= set(outcome.plans)
    safe = [entry for entry in result.alternatives if entry.verdict == "safe"]
    assert all(entry.slower_by_fraction >= -1e-12 for entry in safe)


def test_pareto_points_do_not_dominate_each_other() -> None:
    result = search(mixed()).result
    assert result.pareto is not None
    points = [(p.step_time_s, p.cost_per_1e9_tokens or 0.0, -p.memory_headroom_bytes) for p in result.pareto.points]
    assert points
    assert not any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for a in points for b in points)


def test_relaxations_of_an_infeasible_problem_are_plans() -> None:
    large = sample_model(blocks=[{**LLAMA_LIKE, "repeat": 24, "mlp": {"kind": "dense", "hidden_size": 14336}}])
    outcome = search(mixed(model=large, constraints={"max_devices": 1, "fixed": {"offload_optimizer": 0}}))
    assert outcome.result.status == "infeasible"
    assert outcome.result.infeasible is not None
    assert outcome.result.infeasible.relaxations
    for relaxation in outcome.result.infeasible.relaxations:
        assert relaxation.plan_id in outcome.plans
        assert outcome.plans[relaxation.plan_id].prediction.verdict == relaxation.verdict


@pytest.mark.parametrize("name", ["llama-3.1-8b-8-a100.yaml", "qwen3-30b-a3b-16-h100.yaml"])
def test_every_plan_of_an_answer_can_be_evaluated_as_a_layout(name: str) -> None:
    text = (Path(__file__).parents[3] / "examples" / name).read_text()
    problem = solver.parse_problem(solver.load_document(text, "yaml"))
    outcome = solver.search(problem)
    assert len(outcome.plans) > 1
    for plan in outcome.plans.values():
        evaluation = solver.evaluate(outcome.problems[plan.id], plan.layout.model_dump(mode="json", by_alias=True))
        assert evaluation.plan is not None
        assert evaluation.plan.id == plan.id
        assert evaluation.plan.prediction == plan.prediction
