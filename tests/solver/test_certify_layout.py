"""Recounting a layout: what adds up passes, every single change is found and named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from solver.certify.constraints import constraint_findings
from solver.certify.layout import layout_findings
from solver.layout import Layout
from tests.solver.sample_layouts import group, mixed_document, moe_model, sample_problem, uniform, uniform_document


def findings(document: dict[str, Any], **problem: Any) -> str:
    return "; ".join(layout_findings(sample_problem(**problem), Layout.model_validate(document)))


@pytest.mark.parametrize(
    "degrees",
    [
        {},
        {"tp": 4, "dp": 4, "pp": 1},
        {"tp": 1, "cp": 2, "dp": 1, "pp": 8},
        {"pp": 2, "vpp": 2},
        {"pp": 4, "vpp": 2, "dp": 2, "tp": 1},
        {"zero": 3, "mbs": 4},
    ],
)
def test_uniform_layouts_add_up(degrees: dict[str, Any]) -> None:
    assert findings(uniform_document(**degrees)) == ""


def test_unequal_shares_add_up() -> None:
    assert findings(mixed_document(), groups=[group(), group("a", "A100-SXM4-80")]) == ""


def test_expert_meshes_and_prediction_layers_add_up() -> None:
    document = uniform_document(tp=2, dp=4, pp=2, ep=4, etp=1, mtp=True)
    assert findings(document, model=moe_model(mtp_layers=1)) == ""


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set a value of the document, or remove a key when the value is `...`."""

    def apply(document: dict[str, Any]) -> None:
        *parents, last = [int(key) if key.lstrip("-").isdigit() else key for key in path.split("/")]
        target: Any = document
        for key in parents:
            target = target[key]
        target[last] = value

    return apply


STAGE = "modules/0/stages"
BROKEN = [
    (f"{STAGE}/0/chunks", [[0, 2]], "layers 3 are on no stage"),
    (f"{STAGE}/0/chunks", [[0, 4]], "layers 4 are held twice"),
    (f"{STAGE}/1/chunks", [[4, 8]], "ranges [[4, 8]] leave the layers 0 to 7"),
    (f"{STAGE}/0/chunks", [[0, 1], [2, 3]], "not every stage has vpp"),
    (f"{STAGE}/0/holds", [], "embedding is held by stages []"),
    (f"{STAGE}/0/holds", ["embedding", "head"], "head is held by stages [0, 1]"),
    (f"{STAGE}/1/holds", ["head", "mtp"], "mtp is held by stages [1]"),
    (f"{STAGE}/1/parts/0/devices/0/first", 0, "devices 0, 1, 2, 3 of group h are used twice"),
    (f"{STAGE}/1/parts/0/devices/0/first", 14, "group h has no devices 14 to 17"),
    (f"{STAGE}/1/parts/0/devices/0/group", "x", "group x has no devices"),
    ("idle_devices", [], "neither used nor idle"),
    ("idle_devices", [{"group": "h", "first": 7, "count": 9}], "devices 7 of group h are used twice"),
    (f"{STAGE}/1/parts/0/ranks", [[3, 6]], "not 0 to N - 1, each once"),
    (f"{STAGE}/0/chunks", [[0, 10**6]], "leave the layers"),
    (f"{STAGE}/1/parts/0/ranks", [[4, 10**6]], "999997 ranks on 4 devices"),
    (f"{STAGE}/1/parts/0/ranks", [[4, 8]], "5 ranks on 4 devices"),
    (f"{STAGE}/0/parts/0/mesh/1/size", 2, "multiplies to 8, there are 4 ranks"),
    (f"{STAGE}/0/parts/0/mesh/2/stride", 4, "strides do not reach every rank"),
    (f"{STAGE}/0/parts/0/mesh/1/axis", "ep", "it may have"),
    (f"{STAGE}/0/parts/0/micro_batches", 15, "takes 30 rows a step, the global batch is 32"),
    (f"{STAGE}/1/parts/0/micro_batches", 15, "take other micro-batches"),
    (f"{STAGE}/0/parts/0/share", 0.5, "shares of stage 0 add up to 0.5"),
    (f"{STAGE}/0/strategy/shard/optimizer/shard", 4, "optimizer are 1 x 4, there are 2"),
    (f"{STAGE}/0/strategy/shard/gradients", {"replicate": 1, "shard": 2}, ""),
    (f"{STAGE}/0/strategy/shard/parameters", {"replicate": 1, "shard": 2}, "cut finer"),
    ("schedule/kind", "interleaved", "at least 2 chunks"),
    ("schedule/kind", "dualpipe", "does not go with vpp 1"),
    ("schedule/kind", "zero_bubble_v", "does not go with vpp 1"),
    (f"{STAGE}/0/overrides", [{"layers": [3, 4], "recompute": {"kind": "full"}}], "name layers 4 of other stages"),
]


@pytest.mark.parametrize(("path", "value", "expected"), BROKEN)
def test_one_wrong_value_is_found(path: str, value: Any, expected: str) -> None:
    document = copy.deepcopy(uniform_document())
    change(path, value)(document)
    found = findings(document)
    assert expected in found
    assert bool(found) == bool(expected)


def test_layers_out_of_order_are_found() -> None:
    document = uniform_document(vpp=2)
    stages = document["modules"][0]["stages"]
    stages[0]["chunks"], stages[1]["chunks"] = [[0, 1], [2, 3]], [[4, 5], [6, 7]]
    assert "in their order" in findings(document)


def test_shares_must_follow_micro_batches() -> None:
    document = mixed_document()
    for stage in document["modules"][0]["stages"]:
        stage["parts"][0]["share"], stage["parts"][1]["share"] = 0.5, 0.5
    assert "has share 0.5, its micro-batches make 0.75" in findings(document, groups=[group(), group("a", "A100-SXM4-80")])


def test_a_part_of_two_groups_is_found() -> None:
    document = uniform_document()
    devices = [{"group": "h", "first": 0, "count": 2}, {"group": "a", "first": 0, "count": 2}]
    document["modules"][0]["stages"][0]["parts"][0]["devices"] = devices
    assert "devices of several groups" in findings(document, groups=[group(), group("a", "A100-SXM4-80")])


def test_tolerance_of_the_global_batch_is_honoured() -> None:
    workload = {"global_batch": {"sequences": 33, "tolerance": 0.04}}
    assert findings(uniform_document(rows=32), workload=workload) == ""
    workload = {"global_batch": {"sequences": 33, "tolerance": 0.02}}
    assert "the global batch is 33" in findings(uniform_document(rows=32), workload=workload)


def test_tokens_make_rows_of_the_batch() -> None:
    workload = {"global_batch": {"tokens": 32 * 2048}}
    assert findings(uniform_document(rows=32), workload=workload) == ""


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ({"fixed": {"tp": 2, "pp": 2, "mbs": 1, "dp": 2, "gbs": 32, "zero": 1, "sequence_parallel": True}}, ""),
        ({"fixed": {"schedule": "1f1b", "recompute": "full", "offload_optimizer": 0}}, ""),
        ({"allowed": {"tp": [1, 2], "cp_kind": ["all_to_all"], "recompute": ["none", "full"]}, "max_devices": 8}, ""),
        ({"fixed": {"tp": 4}}, "tp is 2, allowed: 4"),
        ({"allowed": {"pp": [1, 4]}}, "pp is 2, allowed: 1, 4"),
        ({"fixed": {"zero": 3}}, "zero is 1"),
        ({"fixed": {"recompute": "none"}}, "recompute is full"),
        ({"fixed": {"offload_optimizer": 0.5}}, "offload_optimizer is 0.0"),
        ({"max_devices": 7}, "8 devices are used, at most 7"),
    ],
)
def test_constraints_bind_every_stage(constraints: dict[str, Any], expected: str) -> None:
    found = "; ".join(constraint_findings(sample_problem(constraints=constraints), uniform(recompute="full")))
    assert expected in found
    assert bool(found) == bool(expected)
