"""Which layer is what: windows, chunks, recurrences, routed and dense feed-forward, in the order of the config."""

from __future__ import annotations

from typing import Any

import pytest

from tests.solver.importers.configs import (
    DBRX,
    DEEPSEEK_V3,
    ERNIE,
    GEMMA2,
    GEMMA3,
    GLM4_MOE,
    GPT_OSS,
    JAMBA,
    KIMI_LINEAR,
    LLAMA,
    LLAMA4,
    MAMBA2,
    MINIMAX,
    MISTRAL,
    MIXTRAL,
    NEMOTRON_H,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    QWEN3_NEXT,
)
from tests.solver.importers.reading import layers, refused, sizes, warnings

LIST = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]


def windows(config: dict[str, Any]) -> list[int | None]:
    """window_tokens (or chunk_tokens) of each layer."""
    return [attention.window_tokens or attention.chunk_tokens for attention, _ in layers(config)]


def routed(config: dict[str, Any]) -> list[bool]:
    """Which layers have experts."""
    return [mlp is not None and mlp.kind == "moe" for _, mlp in layers(config)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MISTRAL, [None] * 4),
        ({**MISTRAL, "sliding_window": 16}, [16] * 4),
        ({**MISTRAL, "sliding_window_size": 16}, [16] * 4),
        ({**MISTRAL, "sliding_window": 16, "max_position_embeddings": 16}, [None] * 4),
        ({**MISTRAL, "sliding_window": 16, "use_sliding_window": False}, [None] * 4),
        ({**LLAMA, "sliding_window": 16}, [16] * 4),
        (QWEN2, [None] * 4),
        ({**QWEN2, "use_sliding_window": True}, [None, None, None, 32]),
        ({**QWEN3, "sliding_window": 16}, [None] * 4),
        (GEMMA2, [16, None] * 2),
        (GEMMA3, [16] * 5 + [None, 16]),
        ({**GEMMA3, "sliding_window_pattern": "LLG"}, [16, 16, None] * 2 + [16]),
        (GPT_OSS, [16, None] * 2),
        ({**GPT_OSS, "layer_types": LIST}, [16, None, None, 16]),
        (LLAMA4, [32, 32, 32, None]),
        ({**LLAMA4, "attention_chunk_size": None}, [None] * 4),
        ({**LLAMA4, "no_rope_layers": [1, 0, 1, 0]}, [32, None, 32, None]),
    ],
)
def test_windows_and_chunks(config: dict[str, Any], expected: list[int | None]) -> None:
    """By list, by period, from a layer on, or off."""
    assert windows(config) == expected


def test_gemma_norms_outputs_too() -> None:
    """Four norms a layer."""
    assert {block.norm_count for block in sizes(GEMMA2).blocks} == {4}


def test_gpt_oss_details() -> None:
    """Sinks, biases on experts and router."""
    attention, mlp = layers(GPT_OSS)[0]
    assert (attention.sinks, attention.bias, mlp.bias, mlp.router_bias) == (True, True, True, True)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MIXTRAL, [True] * 4),
        (QWEN3_MOE, [True] * 4),
        ({**QWEN3_MOE, "mlp_only_layers": [0]}, [False, True, True, True]),
        ({**QWEN3_MOE, "decoder_sparse_step": 2}, [False, True, False, True]),
        (DEEPSEEK_V3, [False, True, True, True]),
        ({**DEEPSEEK_V3, "moe_layer_freq": 2}, [False, False, True, False]),
        ({**DEEPSEEK_V3, "moe_layer_freq": [0, 1, 0, 1]}, [False, True, False, True]),
        ({**DEEPSEEK_V3, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"]}, [False, True, False, True]),
        (GLM4_MOE, [False, False, True, True]),
        (LLAMA4, [False, True, False, True]),
        ({**LLAMA4, "moe_layers": [2]}, [False, False, True, False]),
        (ERNIE, [False, True, True, False]),
        (JAMBA, [False, True, False, True]),
        (DBRX, [True] * 4),
    ],
)
def test_routed_layers(config: dict[str, Any], expected: list[bool]) -> None:
    """Every family's rule."""
    assert routed(config) == expected


@pytest.mark.parametrize(
    ("config", "experts", "top_k", "width", "shared"),
    [
        (MIXTRAL, 8, 2, 128, 0),
        (DEEPSEEK_V3, 16, 4, 32, 64),
        (QWEN3_NEXT, 16, 4, 32, 32),
        (LLAMA4, 8, 1, 32, 32),
        (ERNIE, 8, 2, 32, 32),
        (DBRX, 8, 2, 32, 0),
        ({**MIXTRAL, "num_experts_per_tok": [2, 2, 2, 2]}, 8, 2, 128, 0),
    ],
)
def test_expert_sizes(config: dict[str, Any], experts: int, top_k: int, width: int, shared: int) -> None:
    """Number, active, width and shared width under every name."""
    mlp = next(mlp for _, mlp in layers(config) if mlp is not None and mlp.kind == "moe")
    assert (mlp.experts, mlp.top_k, mlp.hidden_size, mlp.shared_hidden_size) == (experts, top_k, width, shared)


def test_llama4_dense_layers_have_a_width_of_their_own() -> None:
    """intermediate_size is that of an expert."""
    dense = next(mlp for _, mlp in layers(LLAMA4) if mlp.kind == "dense")
    assert dense.hidden_size == 128


def test_latent_attention() -> None:
    """kv_lora_rank says so; q_lora_rank null is read, groups limit the routing unless it is greedy."""
    attention, mlp = layers(DEEPSEEK_V3)[1]
    assert (attention.kind, attention.q_lora_rank, mlp.groups) == ("mla", 24, 4)
    assert sizes(DEEPSEEK_V3).mtp_layers == 1
    assert layers({**DEEPSEEK_V3, "q_lora_rank": None})[0][0].q_lora_rank is None
    assert layers({**DEEPSEEK_V3, "topk_method": "greedy"})[1][1].groups == 0


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"])
def test_prediction_layers_under_every_name(key: str) -> None:
    """0 is none."""
    assert sizes({**LLAMA, key: 2}).mtp_layers == 2
    assert sizes({**LLAMA, key: 0}).mtp_layers == 0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN3_NEXT, ["linear", "softmax"] * 2),
        ({**QWEN3_NEXT, "layer_types": ["full_attention", "linear_attention"] * 2}, ["softmax", "linear"] * 2),
        (NEMOTRON_H, ["linear", None, "softmax", None]),
        (JAMBA, ["linear", "linear", "softmax", "linear"]),
        (MAMBA2, ["linear"] * 4),
        (MINIMAX, ["linear"] * 3 + ["softmax"]),
        (KIMI_LINEAR, ["linear"] * 3 + ["mla"]),
    ],
)
def test_hybrids(config: dict[str, Any], expected: list[str | None]) -> None:
    """Which layers are a recurrence."""
    assert [attention and attention.kind for attention, _ in layers(config)] == expected


def test_recurrence_sizes() -> None:
    """Gated delta rule and Mamba-2."""
    delta = layers(QWEN3_NEXT)[0][0]
    assert (delta.heads, delta.kv_heads, delta.head_dim, delta.key_head_dim) == (4, 2, 16, 8)
    assert (delta.conv_kernel, delta.decays_per_head, delta.gate) == (4, 2, True)
    assert layers(QWEN3_NEXT)[1][0].output_gate
    mamba = layers(NEMOTRON_H)[0][0]
    assert (mamba.heads, mamba.kv_heads, mamba.head_dim, mamba.key_head_dim, mamba.chunk_tokens) == (8, 2, 16, 32, 64)
    assert layers(MAMBA2)[0][0] == mamba


def test_what_a_recurrence_leaves_out_is_told() -> None:
    """Low-rank projections that the sizes cannot say."""
    assert "Mamba-1" in warnings(JAMBA)
    assert "Kimi delta attention" in warnings(KIMI_LINEAR)


@pytest.mark.parametrize(
    ("config", "pointer", "code"),
    [
        ({**LLAMA, "layer_types": ["full_attention", "wavelet"] * 2}, "/layer_types", "not_supported"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "/layer_types", "conflict"),
        ({**LLAMA, "layer_types": LIST}, "/sliding_window", "missing"),
        ({**LLAMA, "layer_types": ["linear_attention"] * 4}, "/layer_types", "not_supported"),
        ({**NEMOTRON_H, "hybrid_override_pattern": "M-X-"}, "/hybrid_override_pattern", "not_supported"),
        ({**NEMOTRON_H, "hybrid_override_pattern": "M-"}, "/hybrid_override_pattern", "conflict"),
        ({**NEMOTRON_H, "hybrid_override_pattern": None}, "/hybrid_override_pattern", "missing"),
        ({**QWEN3_NEXT, "linear_num_key_heads": 3}, "/linear_num_key_heads", "conflict"),
        ({**DEEPSEEK_V3, "moe_layer_freq": [0, 1]}, "/moe_layer_freq", "conflict"),
        ({**MIXTRAL, "num_experts_per_tok": [1, 2, 2, 2]}, "/num_experts_per_tok", "not_supported"),
        ({**DEEPSEEK_V3, "layer_types": LIST, "sliding_window": 16}, "/layer_types", "not_supported"),
    ],
)
def test_patterns_that_do_not_add_up_are_refused(config: dict[str, Any], pointer: str, code: str) -> None:
    """By the key of the pattern."""
    assert refused(config) == {(pointer, code)}
