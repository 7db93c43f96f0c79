"""The answer's models: shared examples survive a round trip, layouts refuse what they do not know, ids depend on content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from solver.errors import InvalidProblem
from solver.plan import (
    Evaluation,
    GradientSync,
    Layout,
    Progress,
    ProofStep,
    Result,
    UniformLayout,
    Versions,
    Violation,
    parse_layout,
    plan_id,
)

SHARED = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).parents[3] / "shared"))
VERSIONS = Versions(solver="0.1.0", cost_model="1", data="2026-12")
CONTEXT = {"model": {"a": 1}, "workload": {}, "cluster": {}, "framework": {"name": "any", "version": "latest-known"}}


def stage(first: int, last: int, rank: int, **fields: Any) -> dict[str, Any]:
    shard = {"replicate": 2, "shard": 1}
    return {
        "chunks": [[first, last]],
        "parts": [
            {
                "devices": [{"group": "g", "first": rank, "count": 4}],
                "ranks": [[rank, rank + 3]],
                "mesh": [{"axis": "tp", "size": 2, "stride": 1}, {"axis": "dp", "size": 2, "stride": 2}],
                "share": 1.0,
                "micro_batches": 8,
            }
        ],
        "strategy": {
            "sequence_parallel": True,
            "shard": {"parameters": shard, "gradients": shard, "optimizer": {"replicate": 1, "shard": 2}},
            "recompute": {"kind": "full"},
        },
        **fields,
    }


def layout_document(**fields: Any) -> dict[str, Any]:
    overridden = stage(4, 7, 4, holds=["head"], overrides=[{"layers": [6, 7], "recompute": {"kind": "none"}}])
    stages = [stage(0, 3, 0, holds=["embedding"]), overridden]
    return {
        "modules": [{"module": "model", "stages": stages}],
        "gradient_sync": {"kind": "reduce_scatter", "overlap": True},
        **fields,
    }


def errors_of(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    with pytest.raises(InvalidProblem) as caught:
        parse_layout(document)
    return {error.pointer: (error.code, error.message) for error in caught.value.errors}


@pytest.mark.skipif(not (SHARED / "examples").is_dir(), reason="shared examples are not here (PLANNER_SHARED_DIR)")
@pytest.mark.parametrize("name", ["llama-3.1-70b-mixed", "finetune-8-a100-40"])
def test_shared_answers_survive_a_round_trip(name: str) -> None:
    document = json.loads((SHARED / "examples" / f"{name}.answer.json").read_text())["result"]
    assert Result.model_validate(document).model_dump(mode="json") == document


@pytest.mark.skipif(not (SHARED / "examples").is_dir(), reason="shared examples are not here (PLANNER_SHARED_DIR)")
def test_shared_layout_in_classical_words_is_read() -> None:
    layout = parse_layout(json.loads((SHARED / "examples" / "lora-8-a100-40.layout.json").read_text()))
    assert isinstance(layout, UniformLayout)
    assert (layout.tp, layout.pp, layout.recompute.kind, layout.zero, layout.gbs) == (4, 2, "full", 0, 64)


def test_full_layout_derives_its_numbers() -> None:
    layout = parse_layout(layout_document())
    assert isinstance(layout, Layout)
    first, second = layout.stages
    assert layout.pp == 2
    assert layout.global_batch_sequences() == 16
    assert first.parts[0].size("tp") == 2
    assert first.parts[0].size("cp") == 1
    assert first.strategy.shard.zero == 1
    assert [second.recompute_of(layer).kind for layer in second.layers] == ["full", "full", "none", "none"]
    assert list(layout.virtual_stages()) == [(0, 0, (0, 3)), (1, 0, (4, 7))]


def test_full_layout_survives_a_round_trip() -> None:
    layout = parse_layout(layout_document())
    dumped = layout.model_dump(mode="json")
    assert parse_layout(dumped) == layout
    assert "context_parallel" not in dumped["modules"][0]["stages"][0]["strategy"]
    assert dumped["idle_devices"] == []


def test_classical_words_default() -> None:
    layout = parse_layout({"tp": 2.0})
    assert isinstance(layout, UniformLayout)
    assert layout == UniformLayout(tp=2, sequence_parallel=True)
    assert layout.schedule.kind == "1f1b"
    assert layout.zero is None
    assert parse_layout({"tp": 1, "vpp": 2, "pp": 2}).schedule.kind == "interleaved"


def test_unknown_field_names_the_nearest() -> None:
    found = errors_of({"tpp": 2, "tp": 2})
    assert found["/tpp"][0] == "unknown_field"
    assert "'tp'" in found["/tpp"][1]
    document = layout_document()
    document["modules"][0]["stages"][0]["parts"][0]["micro_batch"] = 3
    assert "'micro_batches'" in errors_of(document)["/modules/0/stages/0/parts/0/micro_batch"][1]


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({"tp": 0}, "/tp", "out_of_range"),
        ({"tp": "8"}, "/tp", "wrong_type"),
        ({"tp": True}, "/tp", "wrong_type"),
        ({"tp": 1.5}, "/tp", "wrong_type"),
        ({"tp": [1]}, "/tp", "wrong_type"),
        ({"zero": 4}, "/zero", "out_of_range"),
        ({"recompute": "some"}, "/recompute/kind", "unknown_name"),
        ({"recompute": {"kind": "selective", "modules": ["moe_router"]}}, "/recompute/modules/0", "not_supported"),
        ({"schedule": "zero_bubble_v", "vpp": 3, "pp": 2}, "/schedule", "conflict"),
        ({"schedule": "dualpipe", "vpp": 1, "pp": 2}, "/schedule", "conflict"),
        ({"schedule": "zigzag"}, "/schedule/kind", "unknown_name"),
        ({"schedule": "1f1b", "vpp": 2, "pp": 2}, "/schedule", "conflict"),
        ({"cp_kind": "hierarchical"}, "/cp_kind", "not_supported"),
        ({"offload_activations": 0.5}, "/offload_activations", "not_supported"),
        ({"offload_optimizer": 0.3}, "/offload_optimizer", "not_supported"),
        ({"offload_optimizer": float("nan")}, "/offload_optimizer", "out_of_range"),
        ({"modules": []}, "/modules", "out_of_range"),
        ({"modules": 3}, "/modules", "wrong_type"),
    ],
)
def test_bad_layouts_are_refused_with_a_pointer(document: dict[str, Any], pointer: str, code: str) -> None:
    assert errors_of(document)[pointer][0] == code


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"equivalence": "approximate"}, "/equivalence"),
        ({"sequence_policy": "per_sequence_cp"}, "/sequence_policy"),
        ({"gradient_sync": {"kind": "parameter_server", "overlap": False}}, "/gradient_sync/kind"),
    ],
)
def test_later_union_members_are_not_supported_yet(fields: dict[str, Any], pointer: str) -> None:
    assert errors_of(layout_document(**fields))[pointer][0] == "not_supported"


def test_per_layer_changes_other_than_recompute_are_not_supported_yet() -> None:
    document = layout_document()
    document["modules"][0]["stages"][1]["overrides"] = [{"layers": [4, 5], "offload": {"optimizer": 0.5}}]
    assert errors_of(document)["/modules/0/stages/1/overrides/0/offload"][0] == "not_supported"


def test_plan_id_depends_on_content_alone() -> None:
    layout = parse_layout(layout_document())
    assert isinstance(layout, Layout)
    first = plan_id(CONTEXT, layout, VERSIONS)
    assert len(first) == 64
    reordered = dict(reversed(CONTEXT.items())) | {"model": {"a": 1.0}, "search": {"target_gap": 0.1}}
    assert plan_id(reordered, layout, VERSIONS) == first
    changed = layout.model_copy(update={"gradient_sync": GradientSync(kind="all_reduce")})
    assert plan_id(CONTEXT, changed, VERSIONS) != first
    assert plan_id(CONTEXT | {"model": {"a": 2}}, layout, VERSIONS) != first


def test_evaluations_and_progress_have_their_shape() -> None:
    violation = Violation(rule="MC05", severity="refused", message="no", values={"tp": 8}, nearest={"tp": (1, 2, 4)})
    assert Evaluation(verdict="illegal", violations=(violation,), plan=None).model_dump(mode="json") == {
        "verdict": "illegal",
        "violations": [
            {"rule": "MC05", "severity": "refused", "message": "no", "values": {"tp": 8}, "nearest": {"tp": [1, 2, 4]}}
        ],
        "plan": None,
    }
    progress = Progress(done=1, total=2, incumbent=None, bound=None, gap=None)
    assert progress.model_dump(mode="json") == {"done": 1, "total": 2, "incumbent": None, "bound": None, "gap": None}
    assert ProofStep(cell=("tp", 1), closed_by="bound", value=1.0).model_dump(mode="json")["cell"] == ["tp", 1]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_results_have_a_json_schema(mode: Any) -> None:
    schema = Result.model_json_schema(mode=mode)
    assert {"status", "certificate", "plan"} <= set(schema["properties"])
    assert schema["required"] == ["status", "certificate", "stopped_by", "reproducible"]
    assert schema["$defs"]["Part"]["additionalProperties"] is False
