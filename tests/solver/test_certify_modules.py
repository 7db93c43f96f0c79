"""Layouts of several modules: the certificate's own list of tensors agrees with the cost model, and plans are certified."""

from __future__ import annotations

from typing import Any

import pytest

from solver.certify import certify
from solver.certify.memory import rank_bytes, rank_classes
from solver.errors import CertificationFailed
from solver.evaluate import Evaluator
from solver.exporters import expressible
from solver.search import search
from tests.solver.modules import problem

LAYOUTS: list[dict[str, Any]] = [
    {"dp": 8},
    {"tp": 2, "pp": 2, "dp": 2, "mbs": 2},
    {"tp": 8},
    {"tp": 4, "pp": 2, "recompute": "full"},
    {"cp": 2, "pp": 2, "dp": 2, "zero": 1},
    {"dp": 8, "zero": 3},
    {"dp": 8, "zero": 2, "recompute": "selective"},
]
KINDS: list[dict[str, Any]] = [
    {},
    {"trainable": True},
    {"samples": True},
    {"projector": True, "samples": True, "trainable": True},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_plans_are_certified(kind: dict[str, Any], layout: dict[str, Any]) -> None:
    """Bytes tensor by tensor, the step by the simulated run."""
    of = problem(**kind)
    evaluation = Evaluator(of).evaluate(layout)
    assert evaluation.verdict == "ok", evaluation.violations
    assert evaluation.plan is not None
    certify(of, evaluation.plan)
    assert evaluation.plan.layout.modules[0].module == "language"
    assert {entry.module for entry in evaluation.plan.prediction.memory_bytes} == {"language"}
    assert any("Module vision" in note for note in evaluation.plan.warnings)


@pytest.mark.parametrize("trainable", [False, True])
def test_the_first_stage_alone_carries_the_tower(trainable: bool) -> None:
    """Frozen: its weights and what it hands on; trained: states and inputs of its layers too."""
    layout = {"pp": 2, "dp": 4, "zero": 0}
    with_tower = problem(trainable=trainable)
    plan = Evaluator(with_tower).evaluate(layout).plan
    assert plan is not None
    first, last = (rank_bytes(rank) for rank in rank_classes(with_tower, plan.layout))
    count = 4 * (4 * 256 * 256 + 4 * 256 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256) + 588 * 256 + 256 * 256 + 512
    count += 2 * (512 * 512 + 512)
    table = 32000 * 512
    layers = 4 * (2 * 512 + 512 * 512 * 2 + 512 * 256 * 2 + 3 * 512 * 1536)
    assert first.items["weights"] == 2 * (layers + table + count)
    assert last.items["weights"] == 2 * (layers + 512 + table)
    assert first.items["optimizer"] == 12 * (layers + table + (count if trainable else 0))


def test_the_layout_names_the_module_that_is_planned() -> None:
    """A written-out layout of another module is refused."""
    of = problem()
    plan = Evaluator(of).evaluate({"dp": 8}).plan
    assert plan is not None
    written = plan.layout.model_dump(mode="json", by_alias=True)
    assert Evaluator(of).evaluate(written).verdict == "ok"
    written["modules"][0]["module"] = "vision"
    evaluation = Evaluator(of).evaluate(written)
    assert evaluation.verdict == "illegal"
    assert {violation.rule for violation in evaluation.violations} == {"L01"}


def test_a_tower_that_was_forgotten_is_found() -> None:
    """A prediction of the language model alone does not pass for the whole."""
    with_tower, alone = problem(trainable=True), problem()
    plan = Evaluator(alone).evaluate({"dp": 8}).plan
    real = Evaluator(with_tower).evaluate({"dp": 8}).plan
    assert plan is not None
    assert real is not None
    forged = real.model_copy(update={"prediction": plan.prediction})
    with pytest.raises(CertificationFailed, match="memory of stage 0"):
        certify(with_tower, forged)


@pytest.mark.parametrize("kind", [{}, {"trainable": True, "samples": True}])
def test_searched_and_certified(kind: dict[str, Any]) -> None:
    """The search prices the tower in every layout: its optimum is a certified plan, and no framework is claimed to run it."""
    of = problem(**kind)
    result = search(of).result
    assert result.status == "optimal"
    assert result.plan is not None
    assert result.plan.expressible_in == ()
    assert {field.pointer for field in expressible(of, result.plan.layout, "megatron-core")} >= {"/model/modules"}
    again = Evaluator(of).plan(result.plan.layout)
    assert again.prediction.step_time_s == result.plan.prediction.step_time_s
