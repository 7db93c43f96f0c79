"""config.json of Hugging Face: what each kind of config means, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import InvalidProblem
from solver.importers import import_hf_config
from solver.problem import Model, parse_problem
from tests.solver.importers.configs import (
    ALL,
    CUSTOM,
    DEEPSEEK_V3,
    FALCON,
    GPT2,
    GPT_BIGCODE,
    LLAMA,
    MISTRAL,
    MIXTRAL,
    OPT,
    PHI_MSFT,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    TEXT,
)
from tests.solver.importers.reading import refused, sizes, warnings
from tests.solver.problem.documents import small


@pytest.mark.parametrize("family", sorted(ALL))
def test_each_kind_is_read(family: str) -> None:
    """The result is a model; what was taken for absent keys is told."""
    imported = import_hf_config(ALL[family])
    assert Model.model_validate(imported.model)
    assert imported.warnings


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3_moe", "deepseek_v3", "gpt2", "ourmodel"])
def test_a_config_inside_a_problem(family: str) -> None:
    """It becomes the transformer of the problem."""
    document = small(model={"hf_config": TEXT[family]}, **{"workload.sequence_lengths": {"constant": 64}})
    assert parse_problem(document).transformer.layers == 4


def test_llama_defaults() -> None:
    """No key/value heads: as many as heads; no head_dim: hidden / heads; not tied; all told."""
    transformer = sizes(LLAMA)
    attention = transformer.blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.kv_heads, attention.head_dim, attention.bias, attention.qk_norm) == (8, 8, False, False)
    assert not transformer.tied_embeddings
    assert transformer.norm == "rms"
    told = warnings(LLAMA)
    assert "num_key_value_heads = the number of heads" in told
    assert "tie_word_embeddings = false" in told


def test_absent_keys_are_the_defaults_of_the_class() -> None:
    """Mistral without key/value heads has 8, and a window of 4096, not as many as heads and none."""
    config = {key: value for key, value in MISTRAL.items() if key not in ("num_key_value_heads", "sliding_window")}
    attention = sizes(config).blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.kv_heads, attention.window_tokens) == (8, 4096)
    assert "num_key_value_heads = 8" in warnings(config)
    assert "sliding_window = 4096" in warnings(config)


@pytest.mark.parametrize(
    ("config", "tied"),
    [(LLAMA, False), (GPT2, True), (FALCON, True), (QWEN2, False), (OPT, True), ({**GPT2, "tie_word_embeddings": False}, False)],
)
def test_tied_embeddings_by_family(config: dict[str, Any], tied: bool) -> None:
    """Absent means true for GPT-2 and its like, false for Llama and its like."""
    assert sizes(config).tied_embeddings is tied


def test_head_dim_of_its_own_and_norms_on_queries_and_keys() -> None:
    """Qwen3: heads x head_dim is not hidden_size."""
    attention = sizes(QWEN3).blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.head_dim, attention.qk_norm) == (16, True)


def test_qwen2_has_no_bias_on_the_output() -> None:
    """Biases on queries, keys and values only."""
    attention = sizes(QWEN2).blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.bias, attention.has_output_bias) == (True, False)


def test_gpt2_defaults() -> None:
    """4 x wide, biases, learned positions, layer norm."""
    transformer = sizes(GPT2)
    assert (transformer.norm, transformer.learned_positions) == ("layer", 128)
    mlp = transformer.blocks[0].mlp
    assert mlp is not None
    assert mlp.kind == "dense"
    assert (mlp.hidden_size, mlp.gated, mlp.bias) == (256, False, True)


def test_opt_has_two_more_positions() -> None:
    """Its table starts at position 2."""
    assert sizes(OPT).learned_positions == 130


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        (GPT_BIGCODE, 1),
        ({**GPT_BIGCODE, "multi_query": False}, 8),
        (FALCON, 1),
        ({**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, 2),
        ({**FALCON, "multi_query": False}, 8),
        (PHI_MSFT, 8),
    ],
)
def test_key_value_heads_under_other_names(config: dict[str, Any], kv_heads: int) -> None:
    """multi_query, num_kv_heads, n_head_kv null."""
    attention = sizes(config).blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert attention.kv_heads == kv_heads


@pytest.mark.parametrize(
    ("config", "norms"),
    [(FALCON, 1), ({**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, 2), (PHI_MSFT, 1)],
)
def test_parallel_layers(config: dict[str, Any], norms: int) -> None:
    """Attention and feed-forward read the same input, through one norm or through one each."""
    block = sizes(config).blocks[0]
    assert (block.parallel, block.norm_count) == (True, norms)


def test_phi_has_a_bias_on_its_head() -> None:
    """And n_inner null means four times as wide."""
    transformer = sizes(PHI_MSFT)
    assert transformer.head_bias
    assert transformer.blocks[0].mlp is not None
    assert transformer.blocks[0].mlp.hidden_size == 256


def test_unknown_types_are_read_by_their_keys_and_told() -> None:
    """A custom name with the usual keys; what the keys do not say is in a warning."""
    assert sizes(CUSTOM).blocks == sizes({**LLAMA, "num_key_value_heads": 2}).blocks
    told = warnings(CUSTOM)
    assert "'ourmodel' is not known" in told
    assert "gated true" in told
    routed = {**CUSTOM, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    mlp = sizes(routed).blocks[0].mlp
    assert mlp is not None
    assert mlp.kind == "moe"
    assert (mlp.experts, mlp.top_k, mlp.hidden_size) == (8, 2, 32)


def test_a_known_class_stands_for_an_unknown_type() -> None:
    """RWForCausalLM and the like: custom names of a class that is known."""
    config = {**QWEN3, "model_type": "ours"}
    assert sizes(config).blocks == sizes(QWEN3).blocks


def test_stored_weights_and_position_limits_are_warnings() -> None:
    """quantization_config is not the training precision."""
    told = warnings(
        {**LLAMA, "quantization_config": {"quant_method": "fp8"}, "max_position_embeddings": 4096, "attention_dropout": 0.1}
    )
    assert "training precision" in told
    assert "4096" in told
    assert "attention_dropout" in told


@pytest.mark.parametrize(
    ("config", "pointer", "code"),
    [
        ({}, "/model_type", "missing"),
        ({"hidden_size": 64}, "/model_type", "missing"),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, "/architectures", "not_supported"),
        ({**LLAMA, "architectures": ["MistralForCausalLM"]}, "/architectures", "conflict"),
        ({**LLAMA, "architectures": "LlamaForCausalLM"}, "/architectures", "wrong_type"),
        ({**LLAMA, "model_type": 3}, "/model_type", "wrong_type"),
        ({**LLAMA, "is_encoder_decoder": True}, "/is_encoder_decoder", "not_supported"),
        ({**LLAMA, "num_local_experts": 8}, "/num_experts_per_tok", "missing"),
        ({**LLAMA, "linear_num_value_heads": 4}, "/linear_num_value_heads", "not_supported"),
        ({**LLAMA, "cross_attention_layers": [1]}, "/cross_attention_layers", "not_supported"),
        ({**LLAMA, "audio_config": {}}, "/audio_config", "not_supported"),
        ({**DEEPSEEK_V3, "index_topk": 2048}, "/index_topk", "not_supported"),
        ({**MISTRAL, "num_key_value_heads": 3}, "/num_key_value_heads", "conflict"),
        ({**LLAMA, "num_attention_heads": 7}, "/num_attention_heads", "conflict"),
        ({**LLAMA, "n_embd": 32}, "/n_embd", "conflict"),
        ({**LLAMA, "hidden_size": "64"}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": True}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": 64.5}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": float("nan")}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": float("inf")}, "/hidden_size", "wrong_type"),
        ({**LLAMA, "hidden_size": 0}, "/hidden_size", "out_of_range"),
        ({**LLAMA, "hidden_size": 10**30}, "/hidden_size", "too_large"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "/num_hidden_layers", "too_large"),
        ({**LLAMA, "vocab_size": None}, "/vocab_size", "missing"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "/tie_word_embeddings", "wrong_type"),
        ({**QWEN3_MOE, "shared_expert_intermediate_size": 32}, "/shared_expert_intermediate_size", "not_supported"),
        ({**QWEN3_MOE, "mlp_only_layers": "x"}, "/mlp_only_layers", "wrong_type"),
        ({**QWEN3_MOE, "num_experts_per_tok": 99}, "/num_experts_per_tok", "out_of_range"),
        ({**DEEPSEEK_V3, "attention_bias": True}, "/attention_bias", "not_supported"),
        ({**DEEPSEEK_V3, "n_group": 3}, "/n_group", "conflict"),
        ({**GPT2, "add_cross_attention": True}, "/add_cross_attention", "not_supported"),
        ({**GPT2, "activation_function": "swiglu"}, "/activation_function", "not_supported"),
        ({**OPT, "word_embed_proj_dim": 32}, "/word_embed_proj_dim", "not_supported"),
    ],
)
def test_traps_are_refused_by_field(config: dict[str, Any], pointer: str, code: str) -> None:
    """Never misread: the field and its value are named."""
    assert (pointer, code) in refused(config)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        *((LLAMA, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")),
        *((MIXTRAL, key) for key in ("num_local_experts", "num_experts_per_tok")),
        (QWEN3_MOE, "moe_intermediate_size"),
        (DEEPSEEK_V3, "q_lora_rank"),
        (DEEPSEEK_V3, "kv_lora_rank"),
        (GPT2, "n_embd"),
    ],
)
def test_core_sizes_must_be_there(config: dict[str, Any], key: str) -> None:
    """The missing key is named."""
    assert (f"/{key}", "missing") in refused({k: v for k, v in config.items() if k != key})


def test_pointers_inside_a_problem() -> None:
    """Errors of the config are at their place in the problem."""
    with pytest.raises(InvalidProblem) as caught:
        parse_problem(small(model={"hf_config": {**LLAMA, "hidden_size": "64", "vocab_size": None}}))
    assert {error.pointer for error in caught.value.errors} == {"/model/hf_config/hidden_size", "/model/hf_config/vocab_size"}


def test_infinities_that_nobody_reads() -> None:
    """Python writes time_step_limit with an infinity: taken in a config, refused elsewhere in a problem."""
    config = {**LLAMA, "time_step_limit": [0.0, float("inf")]}
    problem = small(model={"hf_config": config}, **{"workload.sequence_lengths": {"constant": 64}})
    assert parse_problem(problem).transformer.layers == 4
    with pytest.raises(InvalidProblem):
        parse_problem(small(**{"cluster.memory_reserve_fraction": float("inf")}))
