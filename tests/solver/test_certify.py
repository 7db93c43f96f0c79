"""A true plan passes, and a plan with any single false statement is refused with the statement named."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from solver.balance.ledger import ledger
from solver.certify import certify
from solver.certify.memory import RankBytes, rank_bytes, rank_classes
from solver.cost.scenarios import scenario_set
from solver.errors import CertificationFailed
from solver.evaluate import evaluate
from solver.layout import Layout
from solver.plan import Plan, Versions, plan_id
from solver.problem import Problem, load_document, normal_form, normalise, parse_problem
from solver.simulate import simulate
from tests.solver.sample_layouts import group, mixed_document, moe_model, sample_problem, uniform_document

SHARED = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).parents[3] / "shared"))
VERSIONS = Versions(solver="0", cost_model="1", data="0")
LENGTHS = {
    "sequence_lengths": {"counts": [[256, 100], [1024, 40], [2048, 10]]},
    "max_sequence_length": 2048,
    "batching": "packed",
}


def memory_entry(own: RankBytes) -> dict[str, Any]:
    return {
        "stage": own.stage,
        "group": own.group,
        "items": own.items,
        "allocated": own.allocated,
        "allocator": own.allocator,
        "reserved": own.reserved,
        "context": own.context,
        "device": own.device,
        "device_interval": list(own.device_interval),
        "limit": own.limit,
        "capacity": own.capacity,
        "host": own.host or None,
        "verdict": own.verdict,
    }


def plan_document(problem: Problem, document: dict[str, Any]) -> dict[str, Any]:
    """A plan whose prediction is what simulation and recount give."""
    layout = Layout.model_validate(document)
    step = simulate(ledger(problem, layout)).step_time_s
    classes = [rank_bytes(rank) for rank in rank_classes(problem, layout)]
    devices = sum(part.device_count for stage in layout.stages for part in stage.parts)
    tokens_per_s = float(scenario_set(problem).real_tokens.mean()) / step
    breakdown = {
        "compute": 0.7 * step,
        "communication": {"tp": {"exposed": 0.1 * step, "hidden": step}},
        "bubble": 0.15 * step,
        "imbalance": 0.0,
        "optimizer": 0.05 * step,
    }
    prediction = {
        "step_time_s": step,
        "step_time_interval_s": [0.9 * step, 1.1 * step],
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_device": tokens_per_s / devices,
        "mfu": 0.4,
        "mfu_convention": "causal attention counted half",
        "time_breakdown_s": breakdown,
        "memory_bytes": [memory_entry(own) for own in classes],
        "verdict": min((own.verdict for own in classes), key=("no", "fits", "safe").index),
        "cost": {"per_1e9_tokens": 2.0 * devices / 3600 / tokens_per_s * 1e9, "currency": "USD"},
        "provenance": {"compute": "analytical"},
    }
    versions = VERSIONS.model_dump()
    identifier = plan_id(normal_form(problem), layout, VERSIONS)
    return {"id": identifier, "layout": document, "prediction": prediction, "versions": versions}


def check(problem: Problem, document: dict[str, Any]) -> str:
    """All findings as one text, empty when the plan is certified."""
    try:
        certify(problem, Plan.model_validate(document))
    except CertificationFailed as failed:
        return "; ".join(failed.findings)
    return ""


CASES = {
    "uniform": (sample_problem(), uniform_document()),
    "interleaved": (sample_problem(), uniform_document(vpp=2, zero=2)),
    "lengths": (sample_problem(workload=LENGTHS), uniform_document(zero=3, recompute="full")),
    "experts": (sample_problem(moe_model(mtp_layers=1)), uniform_document(dp=4, ep=4, mtp=True)),
    "mixed": (sample_problem(workload=LENGTHS, groups=[group(), group("a", "A100-SXM4-80")]), mixed_document()),
    "offload": (sample_problem(), uniform_document(offload=0.5)),
}


SOME_PLAN = Plan.model_validate(plan_document(*CASES["uniform"]))


@pytest.mark.parametrize("name", CASES)
def test_true_plans_are_certified(name: str) -> None:
    problem, document = CASES[name]
    assert check(problem, plan_document(problem, document)) == ""


FALSE_STATEMENTS = [
    (("id",), lambda _: "0" * 64, "the id is not"),
    (("prediction", "step_time_s"), lambda value: value * 1.006, "the step takes"),
    (("prediction", "step_time_s"), lambda value: value * 0.99, "the step takes"),
    (("prediction", "time_breakdown_s", "bubble"), lambda value: value * 1.1, "the breakdown adds up"),
    (("prediction", "memory_bytes", 0, "items", "weights"), lambda value: value * 1.1, "sum of items"),
    (("prediction", "memory_bytes", 0, "allocated"), lambda value: value * 0.99, "allocated is"),
    (("prediction", "memory_bytes", 1, "allocator"), lambda value: value * 3, "reserved is"),
    (("prediction", "memory_bytes", 1, "device"), lambda value: value * 1.002, "device is"),
    (("prediction", "memory_bytes", 1, "device_interval", 1), lambda value: value * 0.9, "upper end is"),
    (("prediction", "memory_bytes", 0, "limit"), lambda value: value * 1.01, "limit is"),
    (("prediction", "memory_bytes", 0, "capacity"), lambda value: value * 1.01, "capacity is"),
    (("prediction", "memory_bytes", 0, "host"), lambda _: 1e9, "host is"),
    (("prediction", "memory_bytes", 0, "verdict"), lambda _: "fits", "the verdict is fits, recounted safe"),
    (("prediction", "memory_bytes", 0, "group"), lambda _: "x", "classes of equal ranks"),
    (("prediction", "tokens_per_s"), lambda value: value * 1.01, "tokens_per_s is"),
    (("prediction", "tokens_per_s_per_device"), lambda value: value / 2, "tokens_per_s_per_device is"),
    (("prediction", "cost", "per_1e9_tokens"), lambda value: value * 0.99, "cost per_1e9_tokens is"),
    (("prediction", "verdict"), lambda _: "no", "the verdict is no, recounted safe"),
]


@pytest.mark.parametrize(("path", "falsify", "expected"), FALSE_STATEMENTS)
def test_a_false_statement_is_named(path: tuple[Any, ...], falsify: Any, expected: str) -> None:
    problem, document = CASES["uniform"]
    plan = copy.deepcopy(plan_document(problem, document))
    target: Any = plan
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = falsify(target[path[-1]])
    assert expected in check(problem, plan)


EVALUATED = [sample_problem(groups=[group(nodes=4)]), sample_problem(moe_model(mtp_layers=1), groups=[group(nodes=4)])]


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_whatever_evaluate_predicts_is_certified(data: st.DataObject) -> None:
    problem = data.draw(st.sampled_from(EVALUATED))
    words: dict[str, Any] = {name: data.draw(st.sampled_from([1, 2, 4])) for name in ("tp", "pp", "cp", "ep", "mbs", "vpp")}
    words["zero"] = data.draw(st.integers(0, 3))
    words["recompute"] = data.draw(st.sampled_from(["none", "selective", "full"]))
    words["offload_optimizer"] = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    outcome = evaluate(problem, words)
    assume(outcome.plan is not None)
    certify(problem, outcome.plan)


def test_small_rounding_is_accepted() -> None:
    problem, document = CASES["uniform"]
    plan = plan_document(problem, document)
    plan["prediction"]["step_time_s"] *= 1.002
    for entry in plan["prediction"]["memory_bytes"]:
        entry["device"] *= 1.0005
    assert check(problem, plan) == ""


def test_a_missing_class_is_found() -> None:
    problem, document = CASES["mixed"]
    plan = plan_document(problem, document)
    del plan["prediction"]["memory_bytes"][1]
    assert "classes of equal ranks" in check(problem, plan)


def test_a_broken_layout_is_not_priced() -> None:
    problem, document = CASES["uniform"]
    plan = copy.deepcopy(plan_document(problem, document))
    plan["layout"]["idle_devices"] = []
    assert "neither used nor idle" in check(problem, plan)


def test_constraints_and_frameworks_are_asked() -> None:
    _, document = CASES["uniform"]
    bound = sample_problem(constraints={"fixed": {"tp": 4}})
    assert "tp is 2, allowed: 4" in check(bound, plan_document(bound, document))
    megatron = sample_problem(workload=LENGTHS, groups=[group(), group("a", "A100-SXM4-80")], framework="megatron-core")
    assert "rule " in check(megatron, plan_document(megatron, mixed_document()))


OTHER_VALUES = {
    bool: st.booleans(),
    int: st.integers(0, 20),
    float: st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    str: st.sampled_from(["h", "a", "full", "selective", "interleaved", "1f1b", "ep", "edp", "tp", "head", "padded"]),
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all scalars of a document."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, entry in entries for leaf in leaves(entry, (*path, key))]
    return [path]


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_layout_breaks_the_check(data: st.DataObject) -> None:
    """Any well-formed layout, however wrong, is certified or refused with findings; nothing else is raised."""
    problem, original = CASES[data.draw(st.sampled_from(sorted(CASES)))]
    document = copy.deepcopy(original)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(leaves(document)))
        target: Any = document
        for key in parents:
            target = target[key]
        target[last] = data.draw(OTHER_VALUES[type(target[last])])
    try:
        layout = Layout.model_validate(document)
    except ValidationError:
        return
    plan = SOME_PLAN.model_copy(update={"layout": layout, "id": plan_id(normal_form(problem), layout, VERSIONS)})
    with contextlib.suppress(CertificationFailed):
        certify(problem, plan)


def test_it_imports_neither_search_nor_bounds_nor_evaluate() -> None:
    for name in Path(sys.modules["solver.certify"].__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(name.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("solver"):
                assert node.module.split(".")[1] not in ("search", "bounds", "evaluate", "replay")


@pytest.mark.skipif(not (SHARED / "examples").is_dir(), reason="shared examples are not here (PLANNER_SHARED_DIR)")
def test_the_shared_mixed_layout_is_certified() -> None:
    """Layers and batch shares unlike between H100 and A100, recompute changed by overrides, long-tailed lengths."""
    examples = SHARED / "examples"
    problem = normalise(parse_problem(load_document((examples / "llama-3.1-70b-mixed.yaml").read_text(), "yaml")))
    answer = json.loads((examples / "llama-3.1-70b-mixed.answer.json").read_text())
    outcome = evaluate(problem, answer["result"]["plan"]["layout"])
    assert outcome.plan is not None
    certify(problem, outcome.plan)
