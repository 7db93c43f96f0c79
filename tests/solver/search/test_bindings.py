"""Nothing that a problem or a layout states is ignored: constraints, limits, other spellings, choices with one price."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import InvalidProblem
from solver.evaluate import evaluate
from solver.problem import normalise, parse_problem
from solver.search import search


def document(**changes: Any) -> dict[str, Any]:
    """Llama-3.1-8B on 8 A100 with a price; top-level members replaced."""
    base: dict[str, Any] = {
        "model": {"preset": "llama-3.1-8b"},
        "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
        "cluster": {"groups": [{"name": "a", "device": "A100-SXM4-80", "nodes": 1, "price_per_device_hour": 2.0}]},
        "framework": "any",
        "search": {"alternatives": 0},
    }
    return base | changes


def result_of(**changes: Any) -> Any:
    return search(parse_problem(document(**changes))).result


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_the_schedule_binds(schedule: str) -> None:
    """The space holds plans of the wanted schedule only."""
    plan = result_of(constraints={"fixed": {"schedule": schedule}}).plan
    assert plan.layout.schedule.kind == schedule


def test_sequence_parallel_binds() -> None:
    """Demanding it leaves tp > 1; with tp 1 nothing is left."""
    plan = result_of(constraints={"fixed": {"sequence_parallel": True}}).plan
    assert plan.layout.stages[0].strategy.sequence_parallel
    assert result_of(constraints={"fixed": {"sequence_parallel": True, "tp": 1}}).status == "infeasible"


def test_one_length_in_another_spelling() -> None:
    """Counts of a single length are that constant."""
    lengths = {"counts": [[512, 1], [512, 2]]}
    workload = {"sequence_lengths": lengths, "global_batch": {"sequences": 64}}
    constant = workload | {"sequence_lengths": {"constant": 512}}
    assert result_of(workload=workload).plan.prediction.step_time_s == result_of(workload=constant).plan.prediction.step_time_s


def test_devices_for_nothing() -> None:
    """A price of zero is a price."""
    groups = [{"name": "a", "device": "A100-SXM4-80", "nodes": 1, "price_per_device_hour": 0}]
    result = result_of(objective="cost", cluster={"groups": groups})
    assert result.status == "optimal"
    assert result.certificate.gap == 0.0


def test_a_step_that_cannot_be_so_fast() -> None:
    """The cap on the step is what binds, and the relaxation names the time that is possible."""
    infeasible = result_of(constraints={"max_step_time_s": 1.0}).infeasible
    assert infeasible.binding == "max_step_time_s"
    assert infeasible.relaxations[0].changes[0].pointer == "/constraints/max_step_time_s"


def test_the_work_limit_counts_closed_cells() -> None:
    """A limit of one cell stops with the rest open and a bound."""
    result = result_of(search={"alternatives": 0, "work_limit": 1})
    assert (result.status, result.stopped_by, result.reproducible) == ("feasible", "work", True)
    assert result.certificate.cells.open > 0
    assert result.certificate.lower_bound_s <= result.plan.prediction.step_time_s


@pytest.mark.parametrize(
    "constraints",
    [
        {"fixed": {"tp": 8}},
        {"max_devices": 4},
        {"max_step_time_s": 1.0},
        {"max_price_per_hour": 1.0},
        {"fixed": {"recompute": "full"}},
        {"fixed": {"offload_optimizer": 1}},
    ],
)
def test_evaluations_obey_constraints(constraints: dict[str, Any]) -> None:
    """A layout that breaks a constraint of its problem is illegal there."""
    problem = normalise(parse_problem(document(constraints=constraints)))
    evaluation = evaluate(problem, {"dp": 8, "zero": 3})
    assert evaluation.verdict == "illegal"
    assert {violation.rule for violation in evaluation.violations} == {"constraints"}


def test_the_stated_batch_must_agree() -> None:
    """gbs in classical words is checked against what the layout runs."""
    problem = normalise(parse_problem(document()))
    assert evaluate(problem, {"dp": 8, "zero": 3, "gbs": 64}).verdict == "ok"
    assert evaluate(problem, {"dp": 8, "zero": 3, "gbs": 63}).verdict == "illegal"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("gradient_sync", "overlap"), False),
        (("gradient_sync", "kind"), "all_reduce"),
        (("sequence_policy",), "padded"),
        (("modules", 0, "stages", 0, "strategy", "reshard_after_forward"), False),
    ],
)
def test_choices_with_one_price_are_not_ignored(path: tuple[Any, ...], value: Any) -> None:
    """A layout that states another choice is refused by its pointer."""
    problem = normalise(parse_problem(document()))
    plan = evaluate(problem, {"dp": 8, "zero": 3}).plan
    assert plan is not None
    changed: Any = plan.layout.model_dump(mode="json")
    here = changed
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    with pytest.raises(InvalidProblem):
        evaluate(problem, changed)


def test_offloaded_gradients_cross_every_micro_batch() -> None:
    """ZeRO 2 with offload sends gradients to the host after each micro-batch: more of them cost more, ZeRO 1 pays once."""
    problem = normalise(parse_problem(document()))

    def optimizer_s(zero: int, mbs: int) -> float:
        layout = {"dp": 8, "zero": zero, "mbs": mbs, "offload_optimizer": 1, "recompute": "full"}
        plan = evaluate(problem, layout).plan
        assert plan is not None
        return plan.prediction.time_breakdown_s.optimizer

    assert optimizer_s(2, 1) > 2.0 * optimizer_s(2, 8)
    assert optimizer_s(1, 1) == pytest.approx(optimizer_s(1, 8))
