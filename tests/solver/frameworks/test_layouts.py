"""Rules on full layouts: what expands from classical words is legal, and each relation that is broken is named once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from solver.certify.layout import layout_findings
from solver.dimensions.words import expand_uniform
from solver.errors import InvalidProblem
from solver.frameworks import get_rule_set, recomputed_per_chunk
from solver.layout import Layout, Override, Recompute, UniformLayout
from solver.plan import parse_layout
from solver.problem import Problem, load_document, parse_problem
from tests.solver.frameworks.problems import dense, problem, qwen3_30b_a3b, softmax, transformer, uniform_model

SHARED = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).parents[4] / "shared"))
ANY, MEGATRON = get_rule_set("any"), get_rule_set("megatron-core")
MODEL = uniform_model(8)


def document(asked: Problem, **words: Any) -> dict[str, Any]:
    return expand_uniform(asked, UniformLayout(**words)).model_dump(mode="json")


def rules(asked: Problem, layout: dict[str, Any] | Layout, rule_set: Any = ANY) -> list[str]:
    parsed = parse_layout(layout) if isinstance(layout, dict) else layout
    return [found.rule for found in rule_set.violations(asked, parsed)]


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"tp": 8},
        {"tp": 2, "cp": 2, "pp": 2},
        {"pp": 2, "vpp": 2, "dp": 4},
        {"pp": 3, "dp": 2},
        {"tp": 2, "pp": 2, "zero": 0},
        {"tp": 4, "pp": 2, "recompute": "full", "offload_optimizer": 0.5, "mbs": 2},
        {"dp": 4},
    ],
)
def test_words_expand_to_a_legal_layout(words: dict[str, Any]) -> None:
    asked = problem(MODEL)
    layout = expand_uniform(asked, UniformLayout(**words))
    assert ANY.violations(asked, layout) == ()
    assert MEGATRON.violations(asked, layout) == ()
    assert layout.global_batch_sequences() == 64
    assert parse_layout(layout.model_dump(mode="json")) == layout


def test_words_expand_with_experts_and_predictions() -> None:
    asked = problem(qwen3_30b_a3b(), nodes=2)
    layout = expand_uniform(asked, UniformLayout(tp=4, ep=8, pp=2))
    part = layout.stages[0].parts[0]
    assert (part.size("ep"), part.size("etp"), part.size("edp"), part.size("dp")) == (8, 1, 1, 2)
    assert MEGATRON.violations(asked, layout) == ()
    asked = problem(uniform_model(7, mtp_layers=1))
    layout = expand_uniform(asked, UniformLayout(pp=4, vpp=2), layers_per_chunk=[1, 1, 1, 1, 1, 1, 1, 0])
    assert layout.stages[3].holds == ("head", "mtp")
    assert layout.stages[3].chunks == ((3, 3), (7, 6))
    assert MEGATRON.violations(asked, layout) == ()


def two_groups() -> Problem:
    groups = [{"name": name, "device": device, "nodes": 1} for name, device in (("h", "H100-SXM5-80"), ("a", "A100-SXM4-80"))]
    return parse_problem(
        {
            "model": {"transformer": MODEL},
            "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
            "cluster": {"groups": groups},
        }
    )


def test_words_over_unlike_groups_make_parts() -> None:
    asked = two_groups()
    layout = expand_uniform(asked, UniformLayout(tp=4, pp=1, groups=("h", "a")))
    assert [part.group for part in layout.stages[0].parts] == ["h", "a"]
    assert [part.share for part in layout.stages[0].parts] == [0.5, 0.5]
    assert rules(asked, layout) == []
    assert rules(asked, layout, MEGATRON) == []
    assert [found.rule for found in ANY.violations(asked, UniformLayout(tp=4))] == ["L10"]
    assert [found.rule for found in ANY.violations(asked, UniformLayout(tp=4, groups=("x",)))] == ["L10"]
    with pytest.raises(InvalidProblem, match="no group"):
        expand_uniform(asked, UniformLayout(groups=("x",)))


def test_a_replica_does_not_span_groups() -> None:
    groups = [
        {"name": name, "device": "H100-SXM5-80", "nodes": 1, "devices_per_node": count}
        for name, count in (("six", 6), ("two", 2))
    ]
    asked = parse_problem(
        {
            "model": {"transformer": MODEL},
            "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
            "cluster": {"groups": groups},
        }
    )
    assert [found.rule for found in ANY.violations(asked, UniformLayout(tp=4, groups=("six", "two")))] == ["L11"]
    assert ANY.violations(asked, UniformLayout(tp=2, groups=("six", "two"))) == ()
    assert ANY.violations(asked, UniformLayout(tp=4, groups=("six", "two"), dp=1)) == ()


@pytest.mark.skipif(not (SHARED / "examples").is_dir(), reason="shared examples are not here (PLANNER_SHARED_DIR)")
def test_the_shared_mixed_plan_is_legal_and_not_expressible() -> None:
    asked = parse_problem(load_document((SHARED / "examples" / "llama-3.1-70b-mixed.yaml").read_text(), "yaml"))
    answer = json.loads((SHARED / "examples" / "llama-3.1-70b-mixed.answer.json").read_text())
    layout = parse_layout(answer["result"]["plan"]["layout"])
    assert rules(asked, layout) == []
    assert rules(asked, layout, MEGATRON) == ["CAP-unequal_shares", "CAP-per_layer_recompute"]


def test_too_many_devices_cannot_expand() -> None:
    with pytest.raises(InvalidProblem, match="the groups have 8 devices"):
        expand_uniform(problem(MODEL), UniformLayout(tp=8, pp=2))


def changed(path: str, value: Any) -> dict[str, Any]:
    """The layout of tp 2, pp 2 with one value changed; the path is relative to the stages."""
    layout = document(problem(MODEL), tp=2, pp=2)
    at: Any = layout["modules"][0]["stages"]
    *steps, name = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in steps:
        at = at[step]
    at[name] = value
    return layout


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("0/chunks", [[0, 2]], "L01"),
        ("0/chunks", [[0, 4]], "L01"),
        ("1/chunks", [[4, 8]], "L01"),
        ("0/chunks", [[0, 1], [2, 3]], "L01"),
        ("0/holds", [], "L02"),
        ("1/holds", ["head", "embedding"], "L02"),
        ("1/holds", ["head", "mtp"], "L02"),
        ("1/parts/0/devices", [{"group": "g", "first": 6, "count": 4}], "L04"),
        ("1/parts/0/devices", [{"group": "g", "first": 2, "count": 4}], "L04"),
        ("1/parts/0/devices", [{"group": "x", "first": 4, "count": 4}], "L04"),
        ("1/parts/0/ranks", [[4, 6]], "L05"),
        ("1/parts/0/ranks", [[3, 6]], "L05"),
        ("1/parts/0/mesh", [{"axis": "tp", "size": 4, "stride": 2}], "L06"),
        ("1/parts/0/mesh", [{"axis": "ep", "size": 4, "stride": 1}], "L06"),
        ("1/parts/0/mesh", [{"axis": "tp", "size": 2, "stride": 1}], "L06"),
        ("0/parts/0/share", 0.5, "L07"),
        ("1/parts/0/micro_batches", 16, "L07"),
        ("0/strategy/shard/optimizer", {"replicate": 1, "shard": 4}, "L08"),
        ("0/strategy/shard/parameters", {"replicate": 1, "shard": 2}, "L08"),
        ("0/overrides", [{"layers": [3, 4], "recompute": {"kind": "full"}}], "L09"),
    ],
)
def test_broken_relations_are_named(path: str, value: Any, rule: str) -> None:
    assert rule in rules(problem(MODEL), changed(path, value))


def test_schedule_agrees_with_chunks() -> None:
    layout = document(problem(MODEL), tp=2, pp=2)
    assert "L03" in rules(problem(MODEL), layout | {"schedule": {"kind": "interleaved"}})


def test_idle_devices_are_not_used() -> None:
    layout = document(problem(MODEL), tp=2, pp=2)
    assert "L04" in rules(problem(MODEL), layout | {"idle_devices": [{"group": "g", "first": 0, "count": 1}]})


def with_recompute(first_layers: dict[int, int], vpp: int = 1) -> Layout:
    """Full recompute of the first N layers of each chunk of the given size 4 (pp 2) or 2 (pp 2, vpp 2)."""
    layout = expand_uniform(problem(MODEL), UniformLayout(pp=2, vpp=vpp, dp=4))
    stages = []
    for index, stage in enumerate(layout.stages):
        overrides = tuple(
            Override(layers=(first, first + first_layers[index] - 1), recompute=Recompute(kind="full"))
            for first, _ in stage.chunks
            if first_layers[index]
        )
        stages.append(stage.model_copy(update={"overrides": overrides}))
    return layout.model_copy(update={"modules": (layout.modules[0].model_copy(update={"stages": tuple(stages)}),)})


def test_recompute_of_the_first_layers() -> None:
    asked = problem(MODEL)
    assert recomputed_per_chunk(with_recompute({0: 2, 1: 2})) == 2
    assert recomputed_per_chunk(with_recompute({0: 1, 1: 1}, vpp=2)) == 1
    assert recomputed_per_chunk(with_recompute({0: 4, 1: 4})) == 4
    assert recomputed_per_chunk(with_recompute({0: 3, 1: 2})) is None
    assert rules(asked, with_recompute({0: 2, 1: 2}), MEGATRON) == []
    assert rules(asked, with_recompute({0: 3, 1: 2}), MEGATRON) == ["CAP-per_layer_recompute"]
    assert rules(asked, with_recompute({0: 3, 1: 2}), ANY) == []


def test_capabilities_are_asked_for() -> None:
    asked = two_groups()
    layout = document(asked, tp=4, pp=1, groups=["h", "a"])
    first, second = layout["modules"][0]["stages"][0]["parts"]
    first |= {"micro_batches": 24, "share": 0.75}
    second |= {"micro_batches": 8, "share": 0.25}
    assert rules(asked, layout) == []
    assert rules(asked, layout, MEGATRON) == ["CAP-unequal_shares"]

    stages = document(asked, tp=4, pp=2, groups=["h", "a"])
    second_stage = stages["modules"][0]["stages"][1]
    second_stage["parts"][0]["mesh"] = [{"axis": "tp", "size": 8, "stride": 1}]
    second_stage["parts"][0]["micro_batches"] = 64
    whole = {"replicate": 1, "shard": 1}
    second_stage["strategy"]["shard"] = {"parameters": whole, "gradients": whole, "optimizer": whole}
    assert rules(asked, stages) == []
    assert set(rules(asked, stages, MEGATRON)) == {"CAP-per_stage_degrees", "CAP-unequal_shares"}


def test_predictions_follow_the_last_layer() -> None:
    asked = problem(uniform_model(8, mtp_layers=1))
    layout = document(asked, pp=2)
    stages = layout["modules"][0]["stages"]
    stages[0]["holds"], stages[1]["holds"] = ["embedding", "mtp"], ["head"]
    assert rules(asked, layout) == []
    assert rules(asked, layout, MEGATRON) == ["MC19"]


def test_learned_positions() -> None:
    block = {"repeat": 8, "attention": softmax(32, 32), "mlp": dense(16384)}
    asked = problem(transformer(block, learned_positions=4096, mtp_layers=1))
    assert [found.rule for found in MEGATRON.violations(asked, UniformLayout())] == ["MC44"]


@pytest.mark.parametrize(
    ("words", "counts", "written"),
    [
        ({"pp": 2, "dp": 4}, [0, 8], [[], [[0, 7]]]),
        ({"pp": 4, "dp": 2}, [4, 4, 0, 0], [[[0, 3]], [[4, 7]], [], []]),
        ({"pp": 2, "vpp": 2, "dp": 4}, [3, 0, 5, 0], [[[0, 2], [3, 7]], []]),
        ({"pp": 2, "vpp": 2, "dp": 4}, [0, 3, 5, 0], [[[], [3, 7]], [[0, 2], []]]),
        ({"pp": 2, "schedule": "zero_bubble_v", "dp": 4}, [4, 4, 0, 0], [[[0, 3], []], [[4, 7], []]]),
    ],
)
def test_chunks_without_layers_are_written_empty(words: dict[str, Any], counts: list[int], written: list[Any]) -> None:
    asked = problem(MODEL)
    layout = expand_uniform(asked, UniformLayout(**words), layers_per_chunk=counts)
    document = layout.model_dump(mode="json")
    assert [stage["chunks"] for stage in document["modules"][0]["stages"]] == written
    again = parse_layout(document)
    assert again == layout
    assert not list(layout_findings(asked, layout))
    assert not rules(asked, document)
