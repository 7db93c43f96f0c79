"""Replay accepts true proof logs and refuses logs that were changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from benchmarks.witnesses import read_example
from solver.errors import CertificationFailed
from solver.plan import ProofStep, Result
from solver.problem import Problem
from solver.replay import replay
from solver.search import search
from tests.oracle.problems import random_problem

SEEDS = (1, 3, 6, 7, 10, 13, 15, 19, 20, 23, 28, 31, 34, 36)
TAMPERED = (15, 23, 54, 58)


@cache
def proven(seed: int) -> tuple[Problem, Result]:
    problem = random_problem(seed)
    problem = problem.model_copy(update={"search": problem.search.model_copy(update={"proof": True})})
    return problem, search(problem).result


def log_of(seed: int) -> tuple[Problem, list[ProofStep]]:
    problem, result = proven(seed)
    assert result.certificate.proof is not None
    return problem, list(result.certificate.proof)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_true_log_is_accepted_and_proves_the_bound(seed: int) -> None:
    problem, log = log_of(seed)
    _, result = proven(seed)
    bound = replay(problem, log)
    if result.plan is None:
        assert bound is None
    elif problem.objective.kind == "step_time":
        assert bound == pytest.approx(result.certificate.lower_bound_s, rel=1e-9)
    else:
        assert bound is not None


def check_example(name: str) -> None:
    problem = read_example(name)
    problem = problem.model_copy(update={"search": problem.search.model_copy(update={"proof": True})})
    certificate = search(problem).result.certificate
    assert certificate.proof is not None
    assert replay(problem, certificate.proof) == pytest.approx(certificate.lower_bound_s, rel=1e-9)


def test_the_log_of_an_example_is_accepted() -> None:
    check_example("llama-3.1-8b-8-a100.yaml")


@pytest.mark.ci
@pytest.mark.parametrize("name", ["gpt3-175b-64-a100.yaml", "qwen3-30b-a3b-16-h100.yaml"])
def test_the_logs_of_larger_examples_are_accepted(name: str) -> None:
    check_example(name)


@pytest.mark.parametrize("word", ["groups", "tp", "dp", "micro_batches", "family", "cp_kind"])
@pytest.mark.parametrize("value", [None, "x", -1, [], {}, [[]], 1.5, 10**30, True])
def test_nonsense_in_a_cell_is_a_finding(word: str, value: object) -> None:
    problem, log = log_of(1)
    step = log[0].model_copy(update={"cell": {**log[0].cell, word: value}})
    with pytest.raises(CertificationFailed):
        replay(problem, [step, *log[1:]])


def test_the_logs_close_cells_in_every_way() -> None:
    ways = {step.closed_by for seed in SEEDS for step in log_of(seed)[1]}
    assert ways == {"bound", "infeasible", "evaluated"}
    open_cells = [step for seed in SEEDS for step in log_of(seed)[1] if is_open(step)]
    assert open_cells, "no open cell was closed whole"


def is_open(step: ProofStep) -> bool:
    cell = step.cell
    return cell["micro_batches"] is None or (cell["family"] == "stages" and cell["first_layers"] is None)


def test_an_unfinished_log_proves_the_least_open_bound() -> None:
    problem = random_problem(20)
    options = problem.search.model_copy(update={"proof": True, "force": "bounds"})
    problem = problem.model_copy(update={"search": options})
    certificate = search(problem, should_stop=lambda: True).result.certificate
    assert certificate.cells.open
    assert replay(problem, certificate.proof or ()) == pytest.approx(certificate.lower_bound_s, rel=1e-9)


def first(log: list[ProofStep], how: str) -> int | None:
    return next((index for index, step in enumerate(log) if step.closed_by == how), None)


def dropped(log: list[ProofStep]) -> list[ProofStep]:
    return log[1:]


def doubled(log: list[ProofStep]) -> list[ProofStep]:
    return [*log, log[-1]]


def elsewhere(log: list[ProofStep]) -> list[ProofStep]:
    return [log[0].model_copy(update={"cell": {**log[0].cell, "mbs": log[0].cell["mbs"] * 3}}), *log[1:]]


def changed(log: list[ProofStep], how: str, whole: bool = False, **update: object) -> list[ProofStep]:
    """The first cell closed in one way (the first open cell closed whole) is changed."""
    index = next((i for i, step in enumerate(log) if step.closed_by == how and (is_open(step) or not whole)), None)
    if index is None:
        pytest.skip(f"no cell of this log is closed as {how}")
    return [*log[:index], log[index].model_copy(update=update), *log[index + 1 :]]


def raised_price(log: list[ProofStep]) -> list[ProofStep]:
    index = first(log, "evaluated")
    value = log[index].value if index is not None else None
    return changed(log, "evaluated", value=1.001 * (value or 0.0))


def lowered_price(log: list[ProofStep]) -> list[ProofStep]:
    index = first(log, "evaluated")
    value = log[index].value if index is not None else None
    return changed(log, "evaluated", value=0.999 * (value or 0.0))


def raised_bound(log: list[ProofStep]) -> list[ProofStep]:
    return changed(log, "bound", whole=True, value=1.0e9)


def lowered_bound(log: list[ProofStep]) -> list[ProofStep]:
    return changed(log, "bound", value=1.0e-9)


def missing_bound(log: list[ProofStep]) -> list[ProofStep]:
    return changed(log, "bound", value=None)


def infeasible_instead(log: list[ProofStep]) -> list[ProofStep]:
    return changed(log, "evaluated", closed_by="infeasible", value=None)


def evaluated_instead(log: list[ProofStep]) -> list[ProofStep]:
    return changed(log, "bound", whole=True, closed_by="evaluated")


def best_by_bound(log: list[ProofStep]) -> list[ProofStep]:
    """The optimum's cell closed by its own value, as if a better plan had been known."""
    priced = [step for step in log if step.closed_by == "evaluated" and step.value is not None]
    best, second, *_ = sorted(priced, key=lambda step: step.value or 0.0)
    if second.value == pytest.approx(best.value, rel=1e-9):
        pytest.skip("the optimum is in two cells")
    return [step.model_copy(update={"closed_by": "bound"}) if step is best else step for step in log]


def no_words(log: list[ProofStep]) -> list[ProofStep]:
    return [log[0].model_copy(update={"cell": {"family": "uniform"}}), *log[1:]]


TAMPERINGS = (
    dropped, doubled, elsewhere, raised_price, lowered_price, raised_bound, lowered_bound, missing_bound, infeasible_instead,
    evaluated_instead, best_by_bound, no_words,
)  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
@pytest.mark.parametrize("seed", TAMPERED)
def test_a_changed_log_is_refused(seed: int, tamper: Callable[[list[ProofStep]], list[ProofStep]]) -> None:
    problem, log = log_of(seed)
    with pytest.raises(CertificationFailed) as failure:
        replay(problem, tamper(log))
    assert failure.value.findings


def test_another_problem_refuses_the_log() -> None:
    problem, log = log_of(1)
    other = problem.model_copy(update={"constraints": problem.constraints.model_copy(update={"max_devices": 1})})
    with pytest.raises(CertificationFailed):
        replay(other, log)
