"""config.json of Hugging Face: each family is read, each trap is either read rightly or refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.errors import InvalidProblem
from solver.importers import import_hf_config
from solver.problem import Transformer, parameter_count, parse_problem
from tests.solver.importers.configs import ALL, DEEPSEEK_V3, GPT2, GPT_BIGCODE, LLAMA, MISTRAL, MIXTRAL, QWEN3, QWEN3_MOE
from tests.solver.problem.documents import small

CONFIGS = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).resolve().parents[3] / "../shared")) / "data/hf_configs"


def sizes(config: dict[str, Any]) -> Transformer:
    """The transformer of a config."""
    return Transformer.model_validate(import_hf_config(config).transformer)


def outcome(config: dict[str, Any]) -> Transformer | InvalidProblem:
    """The transformer, or why not."""
    try:
        return sizes(config)
    except InvalidProblem as error:
        return error


def refused(config: dict[str, Any]) -> set[tuple[str, str]]:
    """(pointer, code) of each error."""
    with pytest.raises(InvalidProblem) as caught:
        import_hf_config(config)
    return {(error.pointer, error.code) for error in caught.value.errors}


@pytest.mark.parametrize("family", sorted(ALL))
def test_each_family_is_read(family: str) -> None:
    """The result is a transformer, also inside a problem."""
    imported = import_hf_config(ALL[family])
    assert imported.family == family
    assert Transformer.model_validate(imported.transformer).layers == 4
    document = small(model={"hf_config": ALL[family]}, **{"workload.sequence_lengths": {"constant": 64}})
    assert parse_problem(document).transformer.layers == 4


def test_llama_defaults() -> None:
    """No key/value heads: as many as heads; no head_dim: hidden / heads; not tied."""
    transformer = sizes(LLAMA)
    attention = transformer.blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.kv_heads, attention.head_dim, attention.bias, attention.qk_norm) == (8, 8, False, False)
    assert not transformer.tied_embeddings
    assert transformer.norm == "rms"


def test_head_dim_of_its_own_and_norms_on_queries_and_keys() -> None:
    """Qwen3: heads x head_dim is not hidden_size."""
    attention = sizes(QWEN3).blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.head_dim, attention.qk_norm) == (16, True)


def test_mixtral_expert_width_is_intermediate_size() -> None:
    """There intermediate_size is that of one expert."""
    mlp = sizes(MIXTRAL).blocks[0].mlp
    assert mlp is not None
    assert mlp.kind == "moe"
    assert (mlp.hidden_size, mlp.experts, mlp.top_k) == (128, 8, 2)


def test_qwen3_moe_layers() -> None:
    """decoder_sparse_step and mlp_only_layers say which layers are routed."""
    kinds = [(block.repeat, block.mlp.kind) for block in sizes({**QWEN3_MOE, "mlp_only_layers": [0]}).blocks if block.mlp]
    assert kinds == [(1, "dense"), (3, "moe")]
    kinds = [(block.repeat, block.mlp.kind) for block in sizes({**QWEN3_MOE, "decoder_sparse_step": 2}).blocks if block.mlp]
    assert kinds == [(1, "dense"), (1, "moe"), (1, "dense"), (1, "moe")]


def test_deepseek_v3() -> None:
    """Latent attention, first layers dense, shared experts summed, expert groups, prediction layer."""
    transformer = sizes(DEEPSEEK_V3)
    dense, routed = transformer.blocks
    assert (dense.repeat, routed.repeat, transformer.mtp_layers) == (1, 3, 1)
    assert routed.attention is not None
    assert routed.attention.kind == "mla"
    assert routed.attention.q_lora_rank == 24
    assert routed.mlp is not None
    assert routed.mlp.kind == "moe"
    assert (routed.mlp.shared_hidden_size, routed.mlp.groups) == (64, 4)


def test_deepseek_without_query_compression() -> None:
    """q_lora_rank null is read; missing, it is not guessed."""
    attention = sizes({**DEEPSEEK_V3, "q_lora_rank": None}).blocks[0].attention
    assert attention is not None
    assert attention.kind == "mla"
    assert attention.q_lora_rank is None
    without = {key: value for key, value in DEEPSEEK_V3.items() if key != "q_lora_rank"}
    assert refused(without) == {("/q_lora_rank", "missing")}


def test_greedy_routing_has_no_groups() -> None:
    """n_group counts only where the routing is limited by groups."""
    mlp = sizes({**DEEPSEEK_V3, "topk_method": "greedy"}).blocks[1].mlp
    assert mlp is not None
    assert mlp.kind == "moe"
    assert mlp.groups == 0


def test_gpt2_defaults() -> None:
    """Tied unless said otherwise, 4 x wide, biases, learned positions, layer norm."""
    transformer = sizes(GPT2)
    assert transformer.tied_embeddings
    assert (transformer.norm, transformer.learned_positions) == ("layer", 128)
    mlp = transformer.blocks[0].mlp
    assert mlp is not None
    assert mlp.kind == "dense"
    assert (mlp.hidden_size, mlp.gated, mlp.bias) == (256, False, True)
    assert not sizes({**GPT2, "tie_word_embeddings": False}).tied_embeddings


def test_multi_query() -> None:
    """One key/value head."""
    attention = sizes(GPT_BIGCODE).blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert attention.kv_heads == 1


def test_stored_weights_and_position_limits_are_warnings() -> None:
    """quantization_config is not the training precision."""
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8"}, "max_position_embeddings": 4096, "attention_dropout": 0.1}
    warnings = " ".join(import_hf_config(config).warnings)
    assert "training precision" in warnings
    assert "4096" in warnings
    assert "attention_dropout" in warnings


@pytest.mark.parametrize(
    ("config", "pointer", "code"),
    [
        ({}, "/model_type", "missing"),
        ({"model_type": "mamba"}, "/model_type", "not_supported"),
        ({"model_type": 3}, "/model_type", "not_supported"),
        ({"architectures": ["GemmaForCausalLM"]}, "/model_type", "missing"),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, "/architectures", "not_supported"),
        ({**LLAMA, "architectures": ["MistralForCausalLM"]}, "/architectures", "not_supported"),
        ({**LLAMA, "vision_config": {}}, "/vision_config", "not_supported"),
        ({"model_type": "llava", "text_config": {}}, "/text_config", "not_supported"),
        ({**LLAMA, "is_encoder_decoder": True}, "/is_encoder_decoder", "not_supported"),
        ({**LLAMA, "num_local_experts": 8}, "/num_local_experts", "not_supported"),
        ({**LLAMA, "layer_types": ["full_attention", "sliding_attention"]}, "/layer_types", "not_supported"),
        ({**LLAMA, "full_attention_interval": 4}, "/full_attention_interval", "not_supported"),
        ({**MISTRAL, "sliding_window": 4096}, "/sliding_window", "not_supported"),
        ({**MISTRAL, "sliding_window_size": 4096}, "/sliding_window_size", "not_supported"),
        ({**QWEN3, "use_sliding_window": True, "sliding_window": 4096}, "/sliding_window", "not_supported"),
        ({**MISTRAL, "num_key_value_heads": None}, "/num_key_value_heads", "missing"),
        ({**MISTRAL, "num_key_value_heads": 3}, "/num_key_value_heads", "conflict"),
        ({**LLAMA, "num_attention_heads": 7}, "/num_attention_heads", "conflict"),
        ({**LLAMA, "hidden_size": "64"}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": True}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": 64.5}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": 0}, "/hidden_size", "out_of_range"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "/num_hidden_layers", "too_large"),
        ({**LLAMA, "vocab_size": None}, "/vocab_size", "missing"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "/tie_word_embeddings", "wrong_type"),
        ({**QWEN3, "head_dim": None}, "/head_dim", "missing"),
        ({**QWEN3_MOE, "shared_expert_intermediate_size": 32}, "/shared_expert_intermediate_size", "not_supported"),
        ({**QWEN3_MOE, "mlp_only_layers": "x"}, "/mlp_only_layers", "wrong_type"),
        ({**QWEN3_MOE, "num_experts_per_tok": 99}, "/num_experts_per_tok", "out_of_range"),
        ({**DEEPSEEK_V3, "attention_bias": True}, "/attention_bias", "not_supported"),
        ({**DEEPSEEK_V3, "n_group": 3}, "/n_group", "conflict"),
        ({**GPT2, "add_cross_attention": True}, "/add_cross_attention", "not_supported"),
        ({**GPT2, "activation_function": "swiglu"}, "/activation_function", "not_supported"),
    ],
)
def test_traps_are_refused_by_field(config: dict[str, Any], pointer: str, code: str) -> None:
    """Never misread: the field and its value are named."""
    assert refused(config) == {(pointer, code)}


def test_pointers_inside_a_problem() -> None:
    """Errors of the config are at their place in the problem."""
    with pytest.raises(InvalidProblem) as caught:
        parse_problem(small(model={"hf_config": {**LLAMA, "hidden_size": "64", "vocab_size": None}}))
    assert {error.pointer for error in caught.value.errors} == {"/model/hf_config/hidden_size", "/model/hf_config/vocab_size"}


def test_windows_that_are_not_in_force() -> None:
    """Off by its flag, null, or as wide as the longest sequence."""
    sizes({**QWEN3, "sliding_window": 4096})
    sizes({**MISTRAL, "sliding_window": None})
    sizes({**MISTRAL, "sliding_window": 4096, "max_position_embeddings": 4096})


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.data())
def test_any_value_in_any_field(family: str, data: st.DataObject) -> None:
    """Read into a valid transformer, or refused."""
    config = dict(ALL[family])
    config[data.draw(st.sampled_from(sorted(config)))] = data.draw(ODD)
    imported = outcome(config)
    if isinstance(imported, InvalidProblem):
        assert imported.errors
    else:
        assert parameter_count(imported) > 0


#: Published sizes in 10^9 parameters (model cards and weight files), prediction layers not counted.
PUBLISHED = {
    "codellama-34b": 33.74,
    "deepseek-v3": 671.0,
    "gpt2": 0.1244,
    "gpt2-medium": 0.3548,
    "gpt-bigcode": None,
    "llama2-7b": 6.738,
    "llama2-13b": 13.016,
    "llama2-70b": 68.977,
    "llama3.1-8b": 8.030,
    "llama3.1-70b": 70.554,
    "llama3.1-405b": 405.85,
    "llama3.2-1b": 1.2358,
    "llama3.2-3b": 3.2127,
    "mistral-7b-instruct-v0.3": 7.248,
    "mixtral-8x7b": 46.70,
    "mixtral-8x22b": 140.6,
    "qwen3-0.6b": 0.596,
    "qwen3-8b": 8.19,
    "qwen3-32b": 32.76,
    "qwen3-30b-a3b": 30.53,
    "qwen3-235b-a22b": 235.09,
    "qwen3-coder-480b-a35b": 480.2,
}


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="no shared configs (PLANNER_SHARED_DIR)")
def test_every_shared_config_is_read_with_its_published_size_or_refused() -> None:
    """No config is read as something else."""
    taken = {}
    for file in sorted(CONFIGS.glob("*.json")):
        found = outcome(json.loads(file.read_text(encoding="utf-8")))
        if isinstance(found, InvalidProblem):
            assert all(item.code in ("not_supported", "missing") for item in found.errors), file.stem
        else:
            taken[file.stem] = parameter_count(found, with_mtp=False) / 1e9
    assert set(taken) == set(PUBLISHED)
    for name, published in PUBLISHED.items():
        if published is not None:
            assert taken[name] == pytest.approx(published, rel=0.005), name
