"""Column rules of Megatron-core: each has one failing and one passing layout; what changed from release to release."""

from __future__ import annotations

from typing import Any

import pytest

from solver.dimensions.words import expand_uniform
from solver.errors import InvalidProblem
from solver.frameworks import framework_versions, get_rule_set
from solver.frameworks.megatron_core import RULES, padded_vocab_size, sequence_multiple
from solver.frameworks.megatron_core.versions import RELEASES
from solver.layout import Layout, UniformLayout
from solver.plan import Violation
from solver.problem import Problem
from solver.search import search
from tests.solver.frameworks.problems import dense, moe, problem, softmax, transformer, uniform_model

LINEAR = {"kind": "linear", "heads": 32, "kv_heads": 16, "head_dim": 128, "key_head_dim": 128}


def hybrid() -> dict[str, Any]:
    return transformer(
        {"repeat": 6, "attention": LINEAR, "mlp": dense(8192)}, {"repeat": 2, "attention": softmax(16, 4), "mlp": dense(8192)}
    )


#: rule: (problem, words that break it, words that obey).
CASES: dict[str, tuple[Problem, dict[str, Any], dict[str, Any]]] = {
    "MC01": (problem(uniform_model(32)), {"tp": 8, "pp": 2, "dp": 1}, {"tp": 4, "pp": 2, "dp": 1}),
    "MC02": (problem(moe(48, 128, 768)), {"tp": 4, "ep": 4, "etp": 4}, {"tp": 4, "ep": 4, "etp": 1}),
    "MC05": (problem(uniform_model(28, 28, 28, 18944)), {"tp": 8}, {"tp": 4}),
    "MC06": (problem(uniform_model(30, 30, 5, 3000)), {"tp": 2}, {"tp": 1}),
    "MC08": (problem(uniform_model(8, vocab_size=50304)), {"tp": 2}, {}),
    "MC09": (problem(uniform_model(8), rows=60), {"dp": 8}, {"dp": 4}),
    "MC10": (problem(uniform_model(8), length=4098), {"cp": 2}, {"cp": 1}),
    "MC11": (problem(uniform_model(8, 32, 8), length=4100), {"tp": 8}, {"tp": 4}),
    "MC11-documents": (
        problem(uniform_model(8), workload={"sequence_lengths": {"counts": [[64, 5], [4096, 1]]}, "batching": "packed"}),
        {"cp": 2}, {"cp": 1},
    ),
    "MC12": (problem(uniform_model(8)), {"tp": 1, "sequence_parallel": True}, {"tp": 2, "sequence_parallel": True}),
    "MC14": (problem(uniform_model(30), nodes=4), {"pp": 4, "dp": 1}, {"pp": 5, "dp": 1}),
    "MC20": (problem(uniform_model(8)), {"vpp": 2}, {"pp": 2, "vpp": 2}),
    "MC21": (problem(uniform_model(24), rows=3), {"pp": 6, "vpp": 2, "dp": 1}, {"pp": 3, "vpp": 2, "dp": 1}),
    "MC22": (problem(moe(8, 72, 768), nodes=2), {"ep": 16}, {"ep": 8}),
    "MC23": (problem(moe(8, 96, 768)), {"tp": 2, "sequence_parallel": False}, {"tp": 2}),
    "MC25": (problem(moe(8, 96, 768, bias=True)), {"tp": 2, "etp": 2}, {"tp": 2, "etp": 1}),
    "MC32": (problem(uniform_model(8)), {"zero": 0, "offload_optimizer": 0.5}, {"zero": 1, "offload_optimizer": 0.5}),
    "MC39": (problem(uniform_model(8, 32, 4)), {"tp": 2, "cp": 4, "cp_kind": "all_to_all"}, {"tp": 2, "cp": 4}),
    "MC43": (problem(hybrid(), nodes=4), {"tp": 8, "cp": 4}, {"tp": 8, "cp": 2}),
    "MC51": (problem(uniform_model(8, 56, 56, 18944), nodes=7), {"tp": 28, "dp": 1}, {"tp": 4, "dp": 1}),
    "MCX-fp16": (problem(moe(8, 96, 768), workload={"precision": "fp16"}), {"ep": 2}, {"ep": 1}),
    "CAP-layers": (problem(uniform_model(4), nodes=2), {"pp": 8, "dp": 1}, {"pp": 4, "dp": 1}),
    "CAP-schedule": (problem(uniform_model(8)), {"pp": 2, "schedule": "zero_bubble_h1"}, {"pp": 2}),
    "CAP-zero": (problem(uniform_model(8)), {"zero": 2}, {"zero": 1}),
}  # fmt: skip
#: MC13 and MC44 depend on the problem alone, MC52 and CAP-offload are reached by full layouts only.
ELSEWHERE = {"MC13", "MC44", "MC52", "CAP-offload"}


def found(asked: Problem, words: dict[str, Any], release: str = "latest-known") -> dict[str, Violation]:
    rules = get_rule_set("megatron-core", release)
    layout = UniformLayout(**words)
    return {entry.rule: entry for entry in (*rules.violations(asked, layout), *rules.changes(asked, layout))}


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in RULES} == set(CASES) | ELSEWHERE


@pytest.mark.parametrize("rule", sorted(CASES))
def test_rule_refuses_one_layout_and_takes_another(rule: str) -> None:
    """With values, the check that notices, and something legal nearby."""
    asked, breaking, obeying = CASES[rule]
    violation = found(asked, breaking)[rule]
    assert violation.fires or rule.startswith("CAP-")
    assert violation.values
    assert violation.nearest
    assert rule not in found(asked, obeying)


def test_rules_of_the_problem_alone() -> None:
    """Learned positions bound the row where the problem lets them; prediction layers need rotary ones."""
    predicting = problem(uniform_model(8, learned_positions=4096, mtp_layers=1))
    assert "MC44" in found(predicting, {})
    assert "MC44" not in found(problem(uniform_model(8, mtp_layers=1)), {})
    with pytest.raises(InvalidProblem, match="learned positions"):
        problem(uniform_model(8, learned_positions=1024))


def test_optimizer_instances() -> None:
    """Copies of the sharded states divide the replicas."""
    asked = problem(uniform_model(8))
    words = UniformLayout(dp=6, zero=1, mbs=1, gbs=66)
    rules = get_rule_set("megatron-core")
    asked66 = problem(uniform_model(8), rows=66)
    assert "MC52" not in {v.rule for v in rules.violations(asked66, expand_uniform(asked66, words, replicate=3))}
    bad = rules.legal(asked, {"dp": [6, 6], "optimizer_replicas": [4, 3], "mbs": [1, 1], "step_rows": [64, 64]})
    assert bad.tolist() == [False, True]
    offload = rules.legal(asked, {"dp": [8, 8], "zero": [1, 1], "offload_optimizer_percent": [30, 50], "step_rows": [64, 64]})
    assert offload.tolist() == [False, True]


def test_versions_are_those_that_were_read() -> None:
    assert framework_versions("megatron-core") == ("latest-known", *reversed(RELEASES))
    with pytest.raises(InvalidProblem, match=r"0\.18"):
        get_rule_set("megatron-core", "0.18")


def test_key_value_heads_are_replicated_from_016() -> None:
    """Two of them at tp 4."""
    asked = problem(uniform_model(8, 16, 2, 4096))
    legal = [release for release in RELEASES if "MC06" not in found(asked, {"tp": 4}, release)]
    assert legal == ["0.16", "0.20"]
    assert found(asked, {"tp": 4}, "0.15")["MC06"].nearest["tp"] == [1, 2]


def test_layers_are_dropped_silently_by_010() -> None:
    """NVIDIA/Megatron-LM#1304; the search never returns such a layout either."""
    asked = problem(uniform_model(30), nodes=4)
    assert found(asked, {"pp": 4, "dp": 1}, "0.10")["MC14"].severity == "silently_changed"
    assert found(asked, {"pp": 4, "dp": 1}, "0.11")["MC14"].severity == "refused"
    for release in RELEASES:
        assert not get_rule_set("megatron-core", release).legal(asked, {"pp": 4, "explicit_split": 0, "step_rows": 64})[0]


def split(counts: list[int], vpp: int = 1) -> tuple[Problem, Layout]:
    asked = problem(uniform_model(sum(counts)), nodes=4)
    return asked, expand_uniform(asked, UniformLayout(pp=len(counts) // vpp, vpp=vpp, dp=1), counts)


@pytest.mark.parametrize(
    ("counts", "vpp", "first"),
    [
        ([8, 8, 8, 8], 1, "0.10"),
        ([7, 8, 8, 7], 1, "0.10"),
        ([3, 4, 4, 3, 3, 4, 4, 3], 2, "0.11"),
        ([7, 8, 9, 6], 1, "0.13"),
        ([3, 4, 4, 3, 4, 4, 4, 3], 2, "0.13"),
    ],
)
def test_uneven_stages_by_release(counts: list[int], vpp: int, first: str) -> None:
    """First and last alone since 0.10, with virtual stages since 0.11, anything by a layout string since 0.13."""
    asked, layout = split(counts, vpp)
    legal = [release for release in RELEASES if not get_rule_set("megatron-core", release).violations(asked, layout)]
    assert legal == list(RELEASES[RELEASES.index(first) :])


@pytest.mark.parametrize(
    ("tp", "cp", "sequence_parallel", "multiple"),
    [(4, 2, True, 8), (3, 4, True, 24), (8, 8, True, 64), (8, 2, True, 16), (8, 2, False, 4), (4, 1, True, 4), (1, 1, False, 1)],
)
def test_sequences_are_padded_to_the_least_common_multiple(tp: int, cp: int, sequence_parallel: bool, multiple: int) -> None:
    """NVIDIA-NeMo/RL#3563: lcm(2 CP, CP TP)."""
    assert sequence_multiple(tp, cp, sequence_parallel) == multiple


def test_padded_vocabulary() -> None:
    """NVIDIA/Megatron-LM#1754."""
    assert [padded_vocab_size(50257, tp) for tp in (1, 2)] == [50304, 50432]
    assert padded_vocab_size(50257, 2, divisible_by=1) == 50258


@pytest.mark.parametrize(("release", "layers"), [("0.10", 12), ("0.12", 14), ("0.13", 14), ("0.20", 14)])
def test_search_obeys_the_release(release: str, layers: int) -> None:
    """Every plan found is legal there; without layout strings only even splits are searched."""
    fixed = {"tp": 1, "cp": 1, "mbs": 1}
    asked = problem(
        uniform_model(layers, 16, 16, 8192, hidden_size=2048),
        rows=16,
        framework={"name": "megatron-core", "version": release},
        constraints={"fixed": fixed, "allowed": {"pp": [2, 4, 7], "vpp": [1, 2]}},
    )
    outcome = search(asked)
    assert outcome.result.status == "optimal"
    rules = get_rule_set("megatron-core", release)
    for plan in outcome.plans.values():
        assert rules.violations(asked, plan.layout) == ()
        even = {last - first for stage in plan.layout.stages for first, last in stage.chunks}
        assert len(even) == 1 or release not in ("0.10", "0.12")


def test_seven_layers_are_split_by_the_search() -> None:
    """NVIDIA/Megatron-LM#381: 4/3 or 3/4, whichever balances embedding and head."""
    fixed = {"pp": 2, "vpp": 1, "tp": 1, "cp": 1, "dp": 1}
    asked = problem(uniform_model(7, 16, 16, 8192, hidden_size=2048), framework="megatron-core", constraints={"fixed": fixed})
    result = search(asked).result
    assert result.plan is not None
    assert sorted(len(stage.layers) for stage in result.plan.layout.stages) == [3, 4]
    assert result.plan.expressible_in == ("megatron-core",)
