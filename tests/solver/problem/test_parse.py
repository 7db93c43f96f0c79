"""Parsing: what is accepted, what is refused, and where the pointer points."""

from __future__ import annotations

from typing import Any

import pytest

from solver.problem import parse_problem
from tests.solver.problem.documents import mixed, small
from tests.solver.problem.refusals import findings, refused

INLINE: dict[str, Any] = {
    "name": "X1",
    "vendor": "acme",
    "peak_flops_per_s": {"bf16": 1e14},
    "memory_bytes": 6.4e10,
    "memory_bytes_per_s": 1e12,
}


def test_small_document_is_completed() -> None:
    """Sizes, node, fabric, lengths and software are filled."""
    problem = parse_problem(small())
    assert problem.transformer.layers == 32
    group = problem.cluster.groups[0]
    assert (group.devices_per_node, group.devices) == (8, 8)
    assert group.host.memory_bytes == 2.0e12
    assert [tier.span_devices for tier in group.fabric] == [8]
    assert problem.workload.max_sequence_length == 4096
    assert problem.workload.software.name == "megatron-core"
    assert problem.workload.software.assumptions["context_bytes"] == 1.3e9


def test_host_is_merged_field_by_field() -> None:
    """Host memory given, PCIe rate of the catalogue."""
    host = parse_problem(small(**{"cluster.groups.0.host": {"memory_bytes": 3.0e11}})).cluster.groups[0].host
    assert (host.memory_bytes, host.pcie_bytes_per_s) == (3.0e11, 2.5e10)


def test_every_pair_of_groups_has_a_link() -> None:
    """No link given: the slower of the two outermost tiers; collectives inside one vendor."""
    document = mixed()
    del document["cluster"]["links"]
    (link,) = parse_problem(document).cluster.links
    assert set(link.between) == {"h100", "a100"}
    assert link.bytes_per_s_per_node == 8 * 2.5e10
    assert link.collectives


def test_unlike_vendors_share_no_collectives_by_default() -> None:
    """Point-to-point only between vendors, unless the problem says otherwise."""
    document = small()
    document["cluster"]["groups"].append({"name": "acme", "device": INLINE, "nodes": 2})
    problem = parse_problem(document)
    assert not problem.cluster.links[0].collectives
    added = problem.cluster.groups[1]
    assert added.device.rates.gemm_efficiency == 0.75
    assert added.device.streaming_multiprocessors == 100
    assert [tier.name for tier in added.fabric] == ["node", "network"]


@pytest.mark.parametrize(
    ("path", "value", "pointer", "code"),
    [
        ("cluster.groups.0.nodes", "4", "/cluster/groups/0/nodes", "wrong_type"),
        ("cluster.groups.0.nodes", True, "/cluster/groups/0/nodes", "wrong_type"),
        ("cluster.groups.0.nodes", 1.5, "/cluster/groups/0/nodes", "wrong_type"),
        ("cluster.groups.0.nodes", 0, "/cluster/groups/0/nodes", "out_of_range"),
        ("cluster.groups.0.nodes", None, "/cluster/groups/0/nodes", "wrong_type"),
        ("cluster.groups.0.nodes", 10**400, "/cluster/groups/0/nodes", "out_of_range"),
        ("cluster.groups.0.nodes", 100_000, "/cluster/groups", "too_large"),
        ("cluster.groups.0.device", "H100-SXM5-8O", "/cluster/groups/0/device", "unknown_name"),
        ("cluster.groups.0.device", "a100", "/cluster/groups/0/device", "ambiguous_name"),
        ("cluster.groups.0.device", 7, "/cluster/groups/0/device", "wrong_type"),
        ("cluster.groups.0.device", {**INLINE, "vendor": None}, "/cluster/groups/0/device/vendor", "wrong_type"),
        (
            "cluster.groups.0.device",
            {**INLINE, "peak_flops_per_s": {"int4": 1}},
            "/cluster/groups/0/device/peak_flops_per_s/int4",
            "unknown_name",
        ),
        (
            "cluster.groups.0.device",
            {**INLINE, "peak_flops_per_s": {}},
            "/cluster/groups/0/device/peak_flops_per_s",
            "out_of_range",
        ),
        (
            "cluster.groups.0.device",
            {**INLINE, "rates": {"gemm_efficiency": 2}},
            "/cluster/groups/0/device/rates/gemm_efficiency",
            "out_of_range",
        ),
        ("cluster.groups.0.price_per_device_hour", "3", "/cluster/groups/0/price_per_device_hour", "wrong_type"),
        ("cluster.groups.0.price_per_device_hour", True, "/cluster/groups/0/price_per_device_hour", "wrong_type"),
        ("cluster.groups.0.price_per_device_hour", float("nan"), "/cluster/groups/0/price_per_device_hour", "invalid"),
        ("cluster.groups.0.price_per_device_hour", 10**400, "/cluster/groups/0/price_per_device_hour", "out_of_range"),
        ("cluster.groups", [], "/cluster/groups", "out_of_range"),
        ("cluster.groups", {}, "/cluster/groups", "wrong_type"),
        ("cluster.memory_reserve_fraction", 1.0, "/cluster/memory_reserve_fraction", "out_of_range"),
        (
            "cluster.links",
            [{"between": ["a100", "b"], "bytes_per_s_per_node": 1e9}],
            "/cluster/links/0/between/1",
            "unknown_name",
        ),
        ("cluster.links", {"node_matrix": {"bytes_per_s": [[1e9]]}}, "/cluster/links/node_matrix", "not_supported"),
        ("cluster.links", {"node_matrix": {"bytes_per_s": "x"}}, "/cluster/links/node_matrix/bytes_per_s", "wrong_type"),
        ("cluster.node_matrix", {"bytes_per_s": [[1e9]]}, "/cluster/node_matrix", "unknown_field"),
        ("cluster.profile", "mine", "/cluster/profile", "not_supported"),
        (
            "cluster.network_trace",
            {"plan_for": "mean", "segments": [{"duration_s": 1, "factors": {"ib": 0.5}}]},
            "/cluster/network_trace",
            "not_supported",
        ),
        ("model", {"preset": "lama-3.1-8b"}, "/model/preset", "unknown_name"),
        ("model", {}, "/model", "missing"),
        ("model.hf_config", {"model_type": "llama"}, "/model", "conflict"),
        ("model", {"hf_config": {"model_type": 3}}, "/model/hf_config/model_type", "wrong_type"),
        ("model", {"layers": {"operators": [{"name": "a"}]}}, "/model/layers", "not_supported"),
        ("workload.sequence_lengths", {}, "/workload/sequence_lengths", "missing"),
        ("workload.sequence_lengths", {"constant": 1, "counts": [[1, 1]]}, "/workload/sequence_lengths", "conflict"),
        ("workload.sequence_lengths", {"counts": [[1, 2, 3]]}, "/workload/sequence_lengths/counts/0", "too_large"),
        ("workload.sequence_lengths", {"counts": [["8", 2]]}, "/workload/sequence_lengths/counts/0/0", "wrong_type"),
        (
            "workload.sequence_lengths",
            {"counts": [[n, 1] for n in range(1, 65538)]},
            "/workload/sequence_lengths",
            "too_large",
        ),
        (
            "workload.sequence_lengths",
            {"histogram": {"edges": [0, 8, 8], "counts": [1, 2]}},
            "/workload/sequence_lengths/histogram",
            "out_of_range",
        ),
        ("workload.sequence_lengths", {"samples": [[{"a": 8}, 2]]}, "/workload/sequence_lengths/samples", "conflict"),
        ("workload.max_sequence_length", 1024, "/workload/max_sequence_length", "conflict"),
        ("workload.batching", "packd", "/workload/batching", "unknown_name"),
        ("workload.batching", "per_sequence", "/workload/batching", "not_supported"),
        ("workload.batching", ["per_sequence"], "/workload/batching/0", "not_supported"),
        ("workload.batching", ["padded", "packed"], "/workload/batching", "conflict"),
        ("workload.batching", ["packed", "packed"], "/workload", "conflict"),
        ("workload.batching", 3, "/workload/batching", "wrong_type"),
        ("workload.global_batch", {}, "/workload/global_batch", "missing"),
        ("workload.global_batch.tokens", 8, "/workload/global_batch", "conflict"),
        ("workload.precision", "fp8", "/workload/precision", "conflict"),
        ("workload.precision", "int4", "/workload/precision", "unknown_name"),
        ("workload.optimizer", "muon", "/workload/optimizer", "not_supported"),
        ("workload.optimizer", {"name": "muon"}, "/workload/optimizer/name", "not_supported"),
        ("workload.optimizer", "adamww", "/workload/optimizer", "unknown_name"),
        ("workload.optimizer", "custom", "/workload/optimizer", "conflict"),
        ("workload.task", "lora", "/workload/task", "not_supported"),
        ("workload.task", "lor", "/workload/task", "unknown_name"),
        ("workload.task", {}, "/workload/task", "missing"),
        ("workload.task", {"kind": "lora", "rank": "8"}, "/workload/task/rank", "wrong_type"),
        ("workload.software", "megatron-cor", "/workload/software", "unknown_name"),
        (
            "workload.software",
            {"assumptions": {"context_byte": 1}},
            "/workload/software/assumptions/context_byte",
            "unknown_name",
        ),
        (
            "workload.software",
            {"assumptions": {"context_bytes": "1"}},
            "/workload/software/assumptions/context_bytes",
            "wrong_type",
        ),
        (
            "workload.software",
            {"assumptions": {"tensor_overlap_fraction": 1.5}},
            "/workload/software/assumptions/tensor_overlap_fraction",
            "out_of_range",
        ),
        ("workload.kernels", {"glue": "fused"}, "/workload/kernels/glue", "unknown_field"),
        ("framework", "megatron", "/framework", "unknown_name"),
        ("framework", "torchtitan", "/framework", "not_supported"),
        ("framework", {"name": "any", "version": "7"}, "/framework/version", "not_supported"),
        ("objective", "energy", "/objective", "not_supported"),
        ("objective", {"kind": "energy"}, "/objective/kind", "not_supported"),
        ("objective", "cost", "/cluster/groups/0/price_per_device_hour", "missing"),
        ("constraints.max_price_per_hour", 9.0, "/cluster/groups/0/price_per_device_hour", "missing"),
        ("constraints.fixed", {"tpp": 1}, "/constraints/fixed/tpp", "unknown_field"),
        ("constraints.fixed", {"tp": "8"}, "/constraints/fixed/tp", "wrong_type"),
        ("constraints.fixed", {"zero": 4}, "/constraints/fixed/zero", "out_of_range"),
        ("constraints.fixed", {"recompute": "some"}, "/constraints/fixed/recompute", "unknown_name"),
        ("constraints.fixed", {"offload_optimizer": 0.3}, "/constraints/fixed/offload_optimizer", "out_of_range"),
        ("constraints.fixed", {"offload_parameters": 1}, "/constraints/fixed/offload_parameters", "not_supported"),
        ("constraints.fixed", {"groups": ["a100"]}, "/constraints/fixed/groups", "not_supported"),
        ("constraints.fixed", {"gbs": 63}, "/constraints/fixed/gbs", "conflict"),
        ("constraints.allowed", {"tp": [2, "x"]}, "/constraints/allowed/tp/1", "wrong_type"),
        ("constraints.allowed", {"tp": "x"}, "/constraints/allowed/tp", "wrong_type"),
        ("constraints.allowed", {"tp": []}, "/constraints/allowed/tp", "out_of_range"),
        ("constraints", {"fixed": {"tp": 8}, "allowed": {"tp": [1, 2]}}, "/constraints/fixed/tp", "conflict"),
        ("constraints", [], "/constraints", "wrong_type"),
        ("search", {"target_gap": 1.5}, "/search/target_gap", "out_of_range"),
        ("search", {"alternatives": 1000}, "/search/alternatives", "out_of_range"),
        ("running", {"plan": "0" * 64}, "/running", "not_supported"),
        ("running", {"plan": "zz"}, "/running/plan", "invalid"),
        ("modle", {}, "/modle", "unknown_field"),
        ("a/b~c", 1, "/a~1b~0c", "unknown_field"),
    ],
)
def test_refusals_name_the_field(path: str, value: Any, pointer: str, code: str) -> None:
    """One wrong field: one error, at that field of the user's document."""
    assert findings(small(**{path: value})) == {(pointer, code)}


def test_missing_parts() -> None:
    """Required fields are named."""
    assert findings({}) == {("/model", "missing"), ("/workload", "missing"), ("/cluster", "missing")}


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_not_an_object(document: Any) -> None:
    """The problem is an object."""
    assert findings(document) == {("", "wrong_type")}


def test_all_errors_are_collected() -> None:
    """Errors of types come together, and errors of meaning come together."""
    types = mixed(**{"cluster.groups.0.nodes": "4", "workload.precision": "x", "framework": 3})
    assert len(refused(types)) == 3
    meaning = mixed(**{"objective": "energy", "workload.max_sequence_length": 8, "workload.task": "lora", "model.preset": "x"})
    assert {error.pointer for error in refused(meaning)} == {
        "/objective",
        "/workload/max_sequence_length",
        "/workload/task",
        "/model/preset",
    }


def test_nearest_name_is_offered() -> None:
    """Unknown fields and names come with the nearest known one and the list."""
    (field,) = refused(small(**{"workload.kernels": {"atention": "flash"}}))
    assert "did you mean 'attention'" in field.message
    assert field.allowed is not None
    assert "attention" in field.allowed
    (device,) = refused(small(**{"cluster.groups.0.device": "H100-SXM5-8O"}))
    assert "did you mean 'H100-SXM5-80'" in device.message


def test_ambiguous_alias_names_both() -> None:
    """`a100` may be either size."""
    (error,) = refused(small(**{"cluster.groups.0.device": "A100"}))
    assert error.allowed == ("A100-SXM4-40", "A100-SXM4-80")


def test_v100_has_no_bf16() -> None:
    """The precision is checked against every device; a group may have its own."""
    document = small(**{"cluster.groups.0.device": "V100-SXM2-32"})
    (error,) = refused(document)
    assert (error.pointer, error.code, error.allowed) == ("/workload/precision", "conflict", ("fp16", "fp32"))
    document["cluster"]["groups"][0]["precision"] = "fp16"
    assert parse_problem(document).cluster.groups[0].precision == "fp16"
    document["cluster"]["groups"][0]["precision"] = "bf16"
    assert findings(document) == {("/cluster/groups/0/precision", "conflict")}


def test_learned_positions_bound_the_length() -> None:
    """A model with 1,024 learned positions takes no longer sequences."""
    assert findings(small(model={"preset": "gpt2"})) == {("/workload/max_sequence_length", "conflict")}


def test_truncate_allows_longer_sequences() -> None:
    """With truncate they are cut."""
    assert (
        parse_problem(small(**{"workload.max_sequence_length": 1024, "workload.truncate": True})).workload.max_sequence_length
        == 1024
    )


@pytest.mark.parametrize(
    ("lengths", "batch"),
    [
        ({"lognormal": {"median": 100, "sigma": 1.0, "max": 8192}}, {"sequences": 10**6}),
        ({"constant": 4096}, {"sequences": 2 * 10**6}),
        ({"constant": 4096}, {"tokens": 2**50}),
    ],
)
def test_batches_too_large_to_simulate_are_refused(lengths: dict[str, Any], batch: dict[str, Any]) -> None:
    """A batch that would take for ever to draw or to lay out."""
    document = small(**{"workload.sequence_lengths": lengths, "workload.global_batch": batch})
    assert findings(document) == {("/workload/global_batch", "too_large")}


def test_groups_and_links_twice() -> None:
    """Names of groups differ and a pair is linked once."""
    document = mixed()
    document["cluster"]["links"].append({"between": ["a100", "h100"], "bytes_per_s_per_node": 1e9})
    document["cluster"]["groups"].append(document["cluster"]["groups"][0])
    assert findings(document) == {("/cluster/links/1/between", "conflict"), ("/cluster/groups/2/name", "conflict")}


@pytest.mark.parametrize(
    "document",
    [
        small(**{"workload.x": "\ud800"}),
        small(**{"\ud800": 1}),
        {1: 2},
        small(**{"workload.x": object()}),
        small(**{"workload.x": b"1"}),
    ],
)
def test_what_is_not_json_is_invalid(document: Any) -> None:
    """Lone surrogates, keys that are not strings, foreign objects."""
    assert {error.code for error in refused(document)} == {"invalid"}


def test_deep_documents_are_refused() -> None:
    """Depth is capped without recursion."""
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert {error.code for error in refused(small(x=deep))} == {"too_large"}


def test_errors_are_capped() -> None:
    """A hundred errors are listed, the rest counted."""
    counts = [["x", 1]] * 1000
    errors = refused(small(**{"workload.sequence_lengths": {"counts": counts}}))
    assert len(errors) == 101
    assert "900 more" in errors[-1].message


def test_integral_floats_are_counts() -> None:
    """YAML's 1e3 is a number of nodes."""
    assert parse_problem(small(**{"cluster.groups.0.nodes": 2.0})).cluster.groups[0].nodes == 2


def test_hf_config_becomes_the_same_model_as_the_preset() -> None:
    """The config of Llama-3.1-8B and the preset are one."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
    }
    assert parse_problem(small(model={"hf_config": config})) == parse_problem(small())
