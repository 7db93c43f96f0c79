"""What is known at the start of a search shows in its progress at once, and never in an answer that does not need it."""

from __future__ import annotations

from typing import Any

import pytest

from solver.evaluate import Evaluator
from solver.layout import Layout
from solver.plan import Progress
from solver.problem import Problem
from solver.search import Outcome, search
from solver.search.adapt import adapted
from solver.search.seeds import known_at_start
from tests.oracle.problems import random_problem
from tests.solver.sample_layouts import LLAMA_LIKE, group, sample_model, sample_problem

LINK = {"links": [{"between": ["h", "a"], "bytes_per_s_per_node": 5.0e10, "collectives": True}]}
MLP = {"kind": "dense", "hidden_size": 14336}
NARROW = {"allowed": {"cp": [1], "mbs": [1, 2], "vpp": [1]}}


def mixed(nodes: int = 2, **fields: Any) -> Problem:
    """Two kinds of nodes."""
    groups = [group("h", "H100-SXM5-80", 1), group("a", "A100-SXM4-80", nodes)]
    constraints = NARROW | fields.pop("constraints", {})
    return sample_problem(groups=groups, cluster=LINK, constraints=constraints, **fields)


def best_layout(outcome: Outcome) -> Layout:
    assert outcome.result.plan is not None
    return outcome.result.plan.layout


@pytest.mark.parametrize("seed", [1, 3, 4, 6, 7, 8, 9, 10, 11])
def test_seeds_change_no_byte_of_a_proven_answer(seed: int) -> None:
    problem = random_problem(seed)
    told: list[Progress] = []
    plain = search(problem)
    assert plain.result.plan is not None
    layouts = [plan.layout for plan in plain.plans.values()]
    seeded = search(problem, seeds=layouts[::-1], known_bound=plain.result.certificate.lower_bound_s, on_progress=told.append)
    assert seeded.result.model_dump_json() == plain.result.model_dump_json()
    value = told[-1].incumbent
    assert value is not None
    assert all(progress.incumbent == pytest.approx(value, rel=1e-9) for progress in told)


def test_a_work_limit_ends_in_the_same_bytes() -> None:
    problem = mixed()
    limited = problem.model_copy(update={"search": problem.search.model_copy(update={"work_limit": 300})})
    plain = search(limited)
    assert plain.result.stopped_by == "work"
    seeded = search(limited, seeds=[best_layout(search(problem))], known_bound=1e-9)
    assert seeded.result.model_dump_json() == plain.result.model_dump_json()


def test_a_search_stopped_at_once_still_has_its_seed() -> None:
    """Stopped before it has priced anything: the plan is the seed, its bound the known one, the certificate says time."""
    problem = mixed()
    forced = problem.model_copy(update={"search": problem.search.model_copy(update={"force": "bounds"})})
    full = search(forced)
    best = full.result.plan
    assert best is not None
    stopped = search(forced, seeds=[best.layout], known_bound=best.prediction.step_time_s * 0.9, should_stop=lambda: True)
    assert stopped.result.plan == best
    assert stopped.result.status == "feasible"
    assert stopped.result.stopped_by == "time"
    assert not stopped.result.reproducible
    assert stopped.result.certificate.gap is not None
    assert stopped.result.certificate.gap <= 0.1 + 1e-9
    assert set(stopped.plans) == set(stopped.problems)
    assert best.id in stopped.plans
    assert search(forced, should_stop=lambda: True).result.plan is None


def test_a_better_find_replaces_the_seed() -> None:
    """With a poor seed and enough time the answer is the optimum, and incumbents that are worse than the seed are not told."""
    problem = mixed()
    plain = search(problem)
    poor = max(plain.plans.values(), key=lambda plan: plan.prediction.step_time_s)
    told: list[tuple[float, Layout]] = []
    seeded = search(problem, seeds=[poor.layout], on_incumbent=lambda value, layout: told.append((value, layout())))
    assert seeded.result.model_dump_json() == plain.result.model_dump_json()
    values = [value for value, _ in told]
    assert values == sorted(values, reverse=True)
    assert told[0] == (poor.prediction.step_time_s, poor.layout)
    assert told[-1][1] == best_layout(plain)


def test_incumbents_come_with_the_layout_they_rest_on() -> None:
    problem = mixed()
    told: list[tuple[float, Layout]] = []
    search(problem, on_incumbent=lambda value, layout: told.append((value, layout())))
    evaluator = Evaluator(problem)
    assert told
    for value, layout in told:
        assert evaluator.plan(layout).prediction.step_time_s == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("change", ["batch", "node"])
def test_a_near_problem_gives_a_first_incumbent(change: str) -> None:
    """The plan for another batch, or for one node more, becomes a certified plan of this problem before any cell is priced."""
    before = mixed(nodes=2)
    now = mixed(nodes=1) if change == "node" else mixed(workload={"global_batch": {"sequences": 96}})
    known = known_at_start(Evaluator(now), [best_layout(search(before))], None)
    assert known.seed is not None
    told: list[Progress] = []
    result = search(now, seeds=[best_layout(search(before))], on_progress=told.append).result
    assert told[0].incumbent == known.seed.value
    assert result.plan is not None
    assert result.plan.prediction.step_time_s <= known.seed.value * (1.0 + 1e-9)
    assert result.model_dump_json() == search(now).result.model_dump_json()


def test_what_cannot_be_used_is_left_out() -> None:
    """A layout of another model, or on devices that are not there."""
    problem = mixed()
    other = search(sample_problem(groups=[group("x", "H100-SXM5-80", 1)], constraints=NARROW))
    evaluator = Evaluator(problem)
    assert known_at_start(evaluator, [best_layout(other)], None).seed is None
    assert list(adapted(evaluator.model, best_layout(other))) == []


def test_caps_bind_seeds() -> None:
    """A plan that is too slow or too expensive for this problem is no incumbent."""
    layout = best_layout(search(mixed()))
    fastest = Evaluator(mixed()).plan(layout).prediction.step_time_s
    for cap in ({"max_step_time_s": fastest * 0.5}, {"max_price_per_hour": 1.0}):
        assert known_at_start(Evaluator(mixed(constraints=cap)), [layout], None).seed is None


def test_a_plan_of_less_memory_safety_is_no_incumbent() -> None:
    """What only fits does not stand in for a plan that must be safe; where it may, it does."""
    small = {"groups": [group("a", "A100-SXM4-40", 1)], "model": sample_model(blocks=[{**LLAMA_LIKE, "repeat": 40, "mlp": MLP}])}
    daring = sample_problem(**small, constraints=NARROW | {"memory": "fits"})
    risky = [plan for plan in search(daring).plans.values() if plan.prediction.verdict == "fits"]
    assert risky
    careful = Evaluator(sample_problem(**small, constraints=NARROW))
    for plan in risky:
        seed = known_at_start(careful, [plan.layout], None).seed
        assert seed is None or seed.plan.prediction.verdict == "safe"
        bold = known_at_start(Evaluator(daring), [plan.layout], None).seed
        assert bold is not None
        assert bold.plan == plan
