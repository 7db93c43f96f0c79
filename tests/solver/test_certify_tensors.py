"""The listed tensors against published parameter counts and published bytes per layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.certify.saved import Saved, Software, layer_input, saved_tensors
from solver.certify.tensors import Grid, Parameter, layer_parameters, padded_vocabulary
from solver.problem import Block, Transformer, normalise, parameter_count, parse_problem

ONE = Grid(
    tp=1,
    cp=1,
    ep=1,
    etp=1,
    sequence_parallel=False,
    row_tokens=1024,
    tokens=1024,
    element_bytes=2,
    expert_imbalance=1.0,
    vocabulary_multiple=128,
)
FUSED = Software(unfused_attention=False, eager_activation=False, eager_norm_bytes=0.0, dropout=False, permute_copies=0.0)
EAGER = dataclasses.replace(FUSED, eager_activation=True, eager_norm_bytes=6.0, permute_copies=1.0)


def preset(name: str) -> Transformer:
    workload = {"sequence_lengths": {"constant": 1024}, "global_batch": {"sequences": 8}}
    groups = [{"name": "h", "device": "H100-SXM5-80", "nodes": 1, "devices_per_node": 8}]
    return normalise(parse_problem({"model": {"preset": name}, "workload": workload, "cluster": {"groups": groups}})).transformer


def numbers(parameters: Iterable[Parameter]) -> float:
    return sum(parameter.numbers for parameter in parameters)


def size(tensors: Iterable[Saved], *dropped: str) -> float:
    return sum(tensor.size_bytes for tensor in tensors if tensor.rebuilt_by not in dropped)


def all_layers(model: Transformer, grid: Grid) -> float:
    total = sum(block.repeat * numbers(layer_parameters(model, block, grid)) for block in model.blocks)
    return total + model.mtp_layers * numbers(layer_parameters(model, model.blocks[-1], grid, prediction_head=True))


@pytest.mark.parametrize(
    ("name", "published"),
    [  # model cards and papers, parameters in billions
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.55),
        ("qwen3-30b-a3b", 30.5),
        ("mixtral-8x7b", 46.7),
        ("gpt3-175b", 175),
        ("deepseek-v3", 682.6),  # 671 and one prediction layer of 11.5 billion
    ],
)
def test_listed_weights_make_the_published_model(name: str, published: float) -> None:
    model = preset(name)
    tables = (1 if model.tied_embeddings else 2) * model.vocab_size * model.hidden_size
    positions = (model.learned_positions or 0) * model.hidden_size
    final_norm = model.hidden_size * (2 if model.norm == "layer" else 1)
    total = all_layers(model, ONE) + tables + positions + final_norm
    assert total / 1e9 == pytest.approx(published, rel=0.01)
    assert total == pytest.approx(parameter_count(model), rel=1e-3)


def classic_block() -> Block:
    """GPT: heads x width = hidden, f = 4h, GELU."""
    document = {
        "attention": {"kind": "softmax", "heads": 16, "kv_heads": 16, "head_dim": 64, "causal": True},
        "mlp": {"kind": "dense", "hidden_size": 4096, "gated": False},
    }
    return Block.model_validate(document)


def classic_model() -> Transformer:
    return Transformer(hidden_size=1024, vocab_size=1024, norm="layer", blocks=(classic_block(),))


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_classic_layer_keeps_the_published_bytes(tp: int, sequence_parallel: bool) -> None:
    """Korthikanti et al. 2022: s b h (10 + 24/t + 5 a s/(h t)), all of it /t with sequence parallelism.

    They count the two dropout masks and the inputs of norms and linear layers: 10 = norm inputs and outputs (8) and masks (2),
    24 = query, key, value and output (8) and the wide layer twice (16).
    """
    grid = dataclasses.replace(ONE, tp=tp, sequence_parallel=sequence_parallel and tp > 1)
    tensors = list(
        saved_tensors(classic_model(), classic_block(), grid, dataclasses.replace(FUSED, unfused_attention=True, dropout=True))
    )
    s, h, a = grid.tokens, 1024, 16
    outside = 10 / (tp if grid.sequence_parallel else 1)
    assert size(tensors) == pytest.approx(s * h * (outside + 24 / tp + 5 * a * s / (h * tp)))
    assert size(tensors, "core_attn") == pytest.approx(s * h * (outside + 24 / tp))
    assert layer_input(classic_model(), grid).size_bytes == pytest.approx(2 * s * h / (tp if grid.sequence_parallel else 1))


def test_swiglu_with_grouped_heads_keeps_the_traced_bytes() -> None:
    """Per token: 8h norms, 2(a+2g)d + 2ad attention, 4a log-sum-exp, 6f fused or 8f eager; an eager RMSNorm adds 12h."""
    model = preset("llama-3.1-8b")
    h, a, g, d, f = 4096, 32, 8, 128, 14336
    base = 8 * h + 2 * (a + 2 * g) * d + 2 * a * d + 4 * a
    fused = size(saved_tensors(model, model.blocks[0], ONE, FUSED))
    eager = size(saved_tensors(model, model.blocks[0], ONE, EAGER))
    assert fused == pytest.approx(ONE.tokens * (base + 6 * f))
    assert eager == pytest.approx(ONE.tokens * (base + 8 * f + 12 * h))


def test_experts_keep_routed_rows() -> None:
    """Per token: router 4E, and per expert chosen 2h in + 6fe + 2h out, times the imbalance."""
    model = preset("qwen3-30b-a3b")
    h, experts, chosen, width = 2048, 128, 8, 768
    tensors = list(saved_tensors(model, model.blocks[0], dataclasses.replace(ONE, expert_imbalance=1.25), FUSED))
    routed = [
        t for t in tensors if t.name in ("router logits", "dispatched rows", "rows to combine") or t.name.startswith("experts")
    ]
    assert size(routed) == pytest.approx(ONE.tokens * (4 * experts + 1.25 * chosen * (4 * h + 6 * width)))
    assert size(routed) - size(routed, "moe_act") == pytest.approx(ONE.tokens * 1.25 * chosen * 2 * width)


def test_latent_attention_keeps_the_traced_bytes() -> None:
    """Per token: 4rq + 4rkv + 2dr latent, 4a(dn+dr) + 2a dv up-projected, 2a dv out, 4a log-sum-exp."""
    model = preset("deepseek-v3")
    dense = model.blocks[0]
    rq, rkv, dn, dr, dv, a = 1536, 512, 128, 64, 128, 128
    tensors = [tensor for tensor in saved_tensors(model, dense, ONE, FUSED) if not tensor.name.startswith("mlp")]
    latent, raised = 4 * rq + 4 * rkv + 2 * dr, 4 * a * (dn + dr) + 2 * a * dv
    assert size(tensors) == pytest.approx(ONE.tokens * (8 * 7168 + latent + raised + 2 * a * dv + 4 * a))
    assert size(tensors) - size(tensors, "mla_up_proj") == pytest.approx(ONE.tokens * raised)


@given(
    name=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt3-175b"]),
    tp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4, 8]),
    etp=st.sampled_from([1, 2]),
)
@settings(max_examples=60, deadline=None)
def test_shards_of_all_ranks_make_the_whole(name: str, tp: int, ep: int, etp: int) -> None:
    """Sharded weights divide by tp, or by ep x etp for routed experts; only small replicated ones repeat."""
    model = preset(name)
    grid = dataclasses.replace(ONE, tp=tp, ep=ep, etp=etp)
    for block in model.blocks:
        whole = {p.name: p for p in layer_parameters(model, block, ONE)}
        for piece in layer_parameters(model, block, grid):
            ranks = ep * etp if piece.routed else tp
            one = whole[piece.name].numbers
            assert piece.numbers * ranks == pytest.approx(one) or piece.numbers == one
            if piece.numbers == one and ranks > 1:
                assert (
                    "norm" in piece.name
                    or "bias" in piece.name
                    or "down" in piece.name
                    or piece.name.endswith(("router", "gate"))
                )


@given(st.integers(1, 300_000), st.integers(1, 64))
def test_vocabulary_is_padded_for_every_rank(vocab_size: int, tp: int) -> None:
    padded = padded_vocabulary(vocab_size, tp, 128)
    assert padded % (128 * tp) == 0
    assert 0 <= padded - vocab_size < 128 * tp
