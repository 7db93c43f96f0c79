"""Recounted bytes against sums done by hand, and against the arrays of the cost model on random layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solver.balance.ledger import assemble
from solver.certify.layout import layout_findings
from solver.certify.memory import RankBytes, rank_bytes, rank_classes
from solver.certify.saved import Software, operator_saved, saved_tensors
from solver.certify.tensors import Grid, layer_parameters
from solver.cost import storage
from solver.cost.architecture import architecture
from solver.cost.columns import OPTION_NONE, OPTION_SELECTIVE
from solver.cost.memory_kernels import DEVICE, DEVICE_HIGH, HOST, WEIGHTS
from solver.cost.operators import Points
from solver.cost.saved import saved_bytes
from solver.cost.table import cost_model
from solver.layout import Layout
from solver.problem import Block, Problem
from tests.solver.sample_layouts import (
    LLAMA_LIKE,
    group,
    mixed_document,
    moe_model,
    sample_model,
    sample_problem,
    uniform,
    uniform_document,
)


def classes(problem: Problem, layout: Layout) -> list[RankBytes]:
    return [rank_bytes(rank) for rank in rank_classes(problem, layout)]


LAYER = 2 * 4096 + 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
"""parameters of one sample layer: two norms, query and output, key and value, gated MLP"""


def test_states_of_a_whole_model_on_one_device() -> None:
    """bf16 weights 2, fp32 gradients 4, master and two moments 12 bytes a parameter."""
    (rank,) = classes(sample_problem(), uniform(tp=1, dp=1, pp=1, zero=0))
    vocabulary = 32000  # a multiple of 128
    parameters = 8 * LAYER + 4096 + 2 * vocabulary * 4096
    assert rank.items["weights"] == 2 * parameters
    assert rank.items["gradients"] == 4 * parameters
    assert rank.items["optimizer"] == 12 * parameters


@pytest.mark.parametrize(("zero", "divisors"), [(0, (1, 1, 1)), (1, (1, 1, 4)), (2, (1, 4, 4)), (3, (4, 4, 4))])
def test_zero_stages_cut_states_over_the_replicas(zero: int, divisors: tuple[int, int, int]) -> None:
    (whole,) = classes(sample_problem(), uniform(tp=1, dp=1, pp=1, zero=0))
    (cut,) = classes(sample_problem(), uniform(tp=1, dp=4, pp=1, zero=zero))
    for name, divisor in zip(("weights", "gradients", "optimizer"), divisors, strict=True):
        assert cut.items[name] * divisor == pytest.approx(whole.items[name])


def test_activations_in_flight_follow_the_schedule() -> None:
    """1F1B: stage i holds p - i micro-batches of its layers and of its output; sequence parallelism is off at tp 1."""
    first, last = classes(sample_problem(), uniform(tp=1, dp=1, pp=2))
    token_bytes = 8 * 4096 + 2 * (32 + 16) * 128 + 2 * 32 * 128 + 4 * 32 + 6 * 14336
    one = 4 * 2048 * token_bytes + 2048 * 2 * 4096
    assert first.items["activations"] == 2 * one
    assert last.items["activations"] == one
    assert first.items["workspace"] == 0.5 * 2048 * token_bytes
    assert last.items["logits"] == 10 * 2048 * 32000
    assert "workspace" not in last.items


def test_full_recompute_keeps_inputs_and_rebuilds_one_layer() -> None:
    (rank,) = classes(sample_problem(), uniform(tp=1, dp=1, pp=1, recompute="full"))
    assert rank.items["activations"] == (8 + 1) * 2048 * 2 * 4096


def test_interleaving_holds_more_in_flight() -> None:
    plain = classes(sample_problem(), uniform(tp=1, dp=1, pp=4))[0]
    chunked = classes(sample_problem(), uniform(tp=1, dp=1, pp=4, vpp=2))[0]
    assert chunked.items["activations"] / plain.items["activations"] == pytest.approx((2 * 3 + 4 + 1) / 2 / 4)


def test_gathered_inputs_live_only_under_sequence_parallelism() -> None:
    whole, spread = (classes(sample_problem(), uniform(tp=tp, dp=1, pp=1))[0] for tp in (1, 2))
    assert whole.items["buffers"] == 0
    assert spread.items["buffers"] == 3 * 2 * 4096 * 2048


def test_sharding_buffers() -> None:
    """ZeRO 2 keeps a bucket of gradients, ZeRO 3 two gathered layers, one layer's gradients and both gathered tables."""
    (two,) = classes(sample_problem(), uniform(tp=1, dp=4, pp=1, zero=2))
    (three,) = classes(sample_problem(), uniform(tp=1, dp=4, pp=1, zero=3))
    assert two.items["buffers"] == 1.6e8
    assert three.items["buffers"] == (2 * 2 + 4) * LAYER + 2 * 2 * 32000 * 4096


def test_offloaded_states_move_to_the_host() -> None:
    stays, moves = (classes(sample_problem(), uniform(tp=2, dp=4, pp=1, offload=x))[0] for x in (0.0, 0.75))
    assert moves.items["optimizer"] == pytest.approx(0.25 * stays.items["optimizer"])
    assert stays.host == 0
    assert moves.host == pytest.approx(0.75 * stays.items["optimizer"] * (12 + 4) / 12 * 8)


def test_a_full_host_does_not_fit() -> None:
    small = [group() | {"host": {"memory_bytes": 1e9, "pcie_bytes_per_s": 2.5e10}}]
    (rank,) = classes(sample_problem(groups=small), uniform(tp=2, dp=4, pp=1, offload=1.0))
    assert rank.verdict == "no"


def test_prediction_layers_bring_their_own_table() -> None:
    without = classes(sample_problem(), uniform(tp=1, dp=1))[1]
    added = classes(sample_problem(sample_model(mtp_layers=1)), uniform(tp=1, dp=1, mtp=True))[1]
    extra = LAYER + 3 * 4096 + 2 * 4096 * 4096 + 32000 * 4096
    assert added.items["weights"] - without.items["weights"] == 2 * extra
    assert added.items["logits"] == 2 * without.items["logits"]


def test_tied_tables_are_copied_when_the_pipeline_splits() -> None:
    tied = sample_problem(sample_model(tied_embeddings=True))
    (one,) = classes(tied, uniform(tp=1, dp=1, pp=1))
    two = classes(tied, uniform(tp=1, dp=1, pp=2))
    assert sum(rank.items["weights"] for rank in two) - one.items["weights"] == 2 * 32000 * 4096


def test_routed_experts_are_cut_over_their_own_replicas() -> None:
    """tp 2, dp 4: eight ranks; ep 4 leaves two replicas of an expert, so its optimizer state is cut in two, not in four."""
    problem = sample_problem(moe_model())
    (rank,) = classes(problem, uniform(tp=2, dp=4, pp=1, ep=4))
    routed = 8 * 4 * 3 * 4096 * 1024
    dense = rank.items["weights"] / 2 - routed
    assert rank.items["optimizer"] == pytest.approx(12 * (dense / 4 + routed / 2))


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"),
    [
        ({"name": "adamw", "moments": "bf16"}, 8),
        ({"name": "sgd"}, 8),
        ({"name": "lion"}, 8),
        ({"name": "adamw_8bit"}, 6),
        ({"name": "adam", "master": "bf16", "moments": "bf16"}, 6),
        ({"name": "custom", "state_bytes_per_parameter": 5.0}, 5),
    ],
)
def test_types_decide_the_state_bytes(optimizer: dict[str, Any], bytes_each: float) -> None:
    problem = sample_problem(workload={"optimizer": optimizer})
    (rank,) = classes(problem, uniform(tp=1, dp=1, pp=1, zero=0))
    assert rank.items["optimizer"] / rank.items["weights"] == pytest.approx(bytes_each / 2)


@pytest.mark.parametrize(("reserve", "verdict"), [(0.06, "safe"), (0.5, "safe"), (0.51, "fits"), (0.53, "no")])
def test_verdict_follows_the_interval(reserve: float, verdict: str) -> None:
    """One device holds 38.7 ... 40.5 ... 42.4 e9 bytes; the limit is what the reserve leaves of 85e9."""
    (rank,) = classes(sample_problem(cluster={"memory_reserve_fraction": reserve}), uniform(tp=1, dp=1, pp=1, zero=0))
    assert (round(rank.device / 1e9, 1), round(rank.device_interval[1] / 1e9, 1)) == (40.5, 42.4)
    assert rank.limit == (1 - reserve) * rank.capacity
    assert rank.verdict == verdict


# ------------------------------------------------------------------------------------------------- against the arrays of cost
KERNELS = [
    {},
    {"attention": "unfused", "dropout": 0.1, "loss": "gathered"},
    {"norm": "eager", "glu": "eager", "loss": "chunked"},
    {"loss": "fused"},
]
PROFILES: list[dict[str, float]] = [
    {},
    {"step_gradient_bytes_per_parameter": 4, "state_padding_bytes_per_parameter": 0.25, "gradient_bucket_count": 1},
    {"whole_step_gradient_bytes_per_parameter": 4, "step_gradient_bytes_per_parameter": 4, "whole_loss_bytes_per_logit": 14},
    {"accumulated_gradient_bytes_per_parameter": 2, "unpiped_gradient_copy_bytes_per_parameter": 2},
    {"weights_are_master": 1, "live_gradient_copy_bytes_per_parameter": 2, "working_set_factor": 2},
    {"weights_are_master": 1, "pipeline_keeps_gathered": 1, "selective_saves_operators": 1, "vocabulary_multiple": 1},
    {"expert_permute_copies": 1, "default_zero": 0},
    {"shards_are_rows": 1},
]
HYBRID = [
    {
        "repeat": 3,
        "attention": {"kind": "linear", "heads": 32, "kv_heads": 16, "head_dim": 128, "conv_kernel": 4, "decays_per_head": 2},
        "mlp": {"kind": "moe", "hidden_size": 512, "experts": 16, "top_k": 4, "shared_hidden_size": 512, "router_bias": True},
    },
    {
        "attention": {"kind": "softmax", "heads": 32, "kv_heads": 4, "head_dim": 128, "output_gate": True, "qk_norm": True},
        "mlp": {"kind": "moe", "hidden_size": 512, "experts": 16, "top_k": 4, "bias": True},
    },
]
"""three gated delta-rule layers, then one of gated softmax attention"""
MODELS = [
    sample_model(),
    sample_model(blocks=HYBRID * 2),
    sample_model(
        head_bias=True,
        blocks=[
            {
                **LLAMA_LIKE,
                "repeat": 4,
                "mlp": {"kind": "dense", "hidden_size": 8192, "gated": False},
                "norms": 1,
                "parallel": True,
            },
            {
                "repeat": 4,
                "attention": {"kind": "softmax", "heads": 32, "window_tokens": 512, "sinks": True},
                "mlp": {"kind": "dense", "hidden_size": 8192},
                "norms": 4,
            },
        ],
    ),
    sample_model(norm="layer", learned_positions=4096, tied_embeddings=True),
    moe_model(),
    moe_model(mtp_layers=1),
    moe_model(mtp_layers=2, tied_embeddings=True),
    sample_model(
        blocks=[
            {
                "repeat": 8,
                "attention": {
                    "kind": "mla",
                    "heads": 16,
                    "q_lora_rank": 768,
                    "kv_lora_rank": 256,
                    "qk_nope_head_dim": 64,
                    "qk_rope_head_dim": 32,
                    "v_head_dim": 64,
                },
                "mlp": {"kind": "dense", "hidden_size": 8192, "gated": False, "bias": True},
            }
        ]
    ),
    sample_model(
        blocks=[
            {
                "repeat": 8,
                "attention": {"kind": "softmax", "heads": 32, "kv_heads": 4, "head_dim": 64, "bias": True, "qk_norm": True},
                "mlp": {"kind": "dense", "hidden_size": 8192, "bias": True},
            }
        ]
    ),
]


def agrees(problem: Problem, layout: Layout) -> None:
    assembled = assemble(cost_model(problem), layout)
    own = classes(problem, layout)
    chain_of = [index for stage in layout.stages for index in range(len(stage.parts))]
    rows = [assembled.memory[chain, rank.stage] for chain, rank in zip(chain_of, own, strict=True)]
    for row, rank in zip(rows, own, strict=True):
        assert row[DEVICE] == pytest.approx(rank.device, rel=1e-9)
        assert row[DEVICE_HIGH] == pytest.approx(rank.device_interval[1], rel=1e-9)
        assert row[HOST] == pytest.approx(rank.host, rel=1e-9)
        assert row[WEIGHTS] == pytest.approx(rank.items["weights"], rel=1e-9)
    assert min(("no", "fits", "safe").index(rank.verdict) for rank in own) == assembled.verdict


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_cost_arrays_agree_on_random_layouts(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS))
    routed = model["blocks"][0]["mlp"]["kind"] == "moe"
    tp, cp, dp = (data.draw(st.sampled_from(sizes)) for sizes in ([1, 2, 4], [1, 2], [1, 2, 3, 4]))
    ep, etp = (data.draw(st.sampled_from(sizes)) if routed else 1 for sizes in ([1, 2, 4], [1, 2]))
    assume(tp * cp * dp % (ep * etp) == 0)
    document = uniform_document(
        tp=tp,
        cp=cp,
        dp=dp,
        pp=data.draw(st.sampled_from([1, 2, 4])),
        vpp=data.draw(st.sampled_from([1, 2])),
        mbs=data.draw(st.sampled_from([1, 2])),
        zero=data.draw(st.sampled_from([0, 1, 2, 3])) if dp * cp > 1 else 0,
        recompute=data.draw(st.sampled_from(["none", "selective", "full"])),
        ep=ep,
        etp=etp,
        mtp=bool(model.get("mtp_layers")),
        offload=data.draw(st.sampled_from([0.0, 0.25, 1.0])),
        devices=128,
    )
    for stage in document["modules"][0]["stages"]:
        if data.draw(st.booleans()):
            first = stage["chunks"][0][0]
            kind = data.draw(st.sampled_from(["none", "selective", "full"]))
            stage["overrides"] = [{"layers": [first, first], "recompute": {"kind": kind}}]
    workload = {
        "kernels": data.draw(st.sampled_from(KERNELS)),
        "precision": data.draw(st.sampled_from(["bf16", "fp32"])),
        "optimizer": {"main_gradient": data.draw(st.sampled_from(["fp32", "bf16"]))},
        "software": {"assumptions": data.draw(st.sampled_from(PROFILES))},
    }
    problem = sample_problem(model, workload=workload, groups=[group(nodes=16)])
    layout = Layout.model_validate(document)
    assume(not list(layout_findings(problem, layout)))
    agrees(problem, layout)


def test_cost_arrays_agree_on_unequal_shares() -> None:
    problem = sample_problem(groups=[group(), group("a", "A100-SXM4-80")])
    agrees(problem, Layout.model_validate(mixed_document()))


def test_experts_of_one_replica_are_cut_over_the_tensor_ranks() -> None:
    """tp 4, ep 1, etp 1: four ranks hold the same experts; a distributed optimizer cuts their states though dp x cp is 1."""
    problem = sample_problem(moe_model())
    (rank,) = classes(problem, uniform(tp=4, dp=1, pp=1, zero=0))
    routed = 8 * 16 * 3 * 4096 * 1024
    dense = rank.items["weights"] / 2 - routed
    assert rank.items["optimizer"] == pytest.approx(12 * (dense + routed / 4))
    agrees(problem, uniform(tp=4, dp=1, pp=1, zero=0))
    plain = sample_problem(moe_model(), workload={"software": {"assumptions": {"default_zero": 0}}})
    (whole,) = classes(plain, uniform(tp=4, dp=1, pp=1, zero=0))
    assert whole.items["optimizer"] == pytest.approx(12 * (dense + routed))
    agrees(plain, uniform(tp=4, dp=1, pp=1, zero=0))


ATTENTIONS: list[dict[str, Any]] = [
    {"kind": "softmax", "heads": 16, "kv_heads": 2, "head_dim": 64, "output_gate": True, "sinks": True, "qk_norm": True},
    {"kind": "softmax", "heads": 16, "kv_heads": 4, "head_dim": 64, "bias": True, "output_bias": False, "window_tokens": 128},
    {"kind": "linear", "heads": 32, "kv_heads": 16, "head_dim": 128, "key_head_dim": 64, "conv_kernel": 4, "decays_per_head": 2},
    {"kind": "linear", "heads": 64, "kv_heads": 2, "head_dim": 64, "key_head_dim": 128, "gate": False, "bias": True},
]
FEED_FORWARDS: list[dict[str, Any] | None] = [
    None,
    {"kind": "dense", "hidden_size": 4096, "bias": True},
    {"kind": "moe", "hidden_size": 512, "experts": 16, "top_k": 4, "bias": True, "router_bias": True},
]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("mlp", FEED_FORWARDS)
@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("profile", PROFILES)
def test_layers_of_every_kind_agree(
    attention: dict[str, Any], mlp: dict[str, Any] | None, norm: str, profile: dict[str, float]
) -> None:
    """Parameters and saved bytes of one layer, recounted, at several degrees; parallel and sandwiched blocks too."""
    asked = sample_problem(workload={"software": {"assumptions": profile}, "kernels": {"norm": "eager", "dropout": 0.1}})
    for extra in ({}, {"norms": 4}, {"parallel": True, "norms": 1} if mlp else {"norms": 1}):
        block = Block.model_validate({"attention": attention, "mlp": mlp, **extra})
        model = asked.transformer.model_copy(update={"blocks": (block,), "norm": norm})
        problem = asked.model_copy(update={"model": asked.model.model_copy(update={"transformer": model})})
        for tp, ep, etp, parallel in ((1, 1, 1, 0), (4, 2, 2, 1), (8, 4, 1, 1), (2, 1, 2, 0)):
            one = [np.array([size]) for size in (tp, 1, 0, ep, etp, 2, parallel)]
            costs = cost_model(asked).layer_costs(0, Points(*one, row_tokens=2048))
            costs.problem, costs.model = problem, model
            grid = Grid(tp, 1, ep, etp, bool(parallel) and tp > 1, 2048, 4096.0, 2, 1.1, 128)
            software = Software.of(problem.workload)
            kind = architecture(model).kinds[0]
            listed = list(layer_parameters(model, block, grid))
            dense, expert = storage.layer_parameters(costs, kind)
            assert dense[0] == pytest.approx(sum(entry.numbers for entry in listed if not entry.routed))
            assert expert[0] == pytest.approx(sum(entry.numbers for entry in listed if entry.routed))
            saved = saved_bytes(costs, kind)[0]
            tensors = list(saved_tensors(model, block, grid, software))
            assert saved[OPTION_NONE] == pytest.approx(sum(tensor.size_bytes for tensor in tensors))
            if profile.get("selective_saves_operators"):
                kept = operator_saved(model, block, grid, software)
                assert saved[OPTION_SELECTIVE] == pytest.approx(sum(tensor.size_bytes for tensor in kept))
