"""Hugging Face config.json -> the sizes of a transformer. What is not understood for certain is refused, never guessed.

Families: Llama and Mistral, Mixtral, Qwen3 (dense and mixture of experts), GPT-2 and GPT-BigCode, DeepSeek-V2 / V3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from solver.importers.config_reader import ConfigReader
from solver.importers.hf_guards import check_architecture, check_attention_pattern, check_nesting, note_harmless

_MAX_LAYERS: Final = 4096


@dataclass(frozen=True)
class ImportedModel:
    """`transformer` is the document of problem.model.Transformer; `warnings` say what was left out and why."""

    transformer: dict[str, Any]
    warnings: tuple[str, ...]
    family: str


def import_hf_config(config: Mapping[str, Any]) -> ImportedModel:
    """The sizes in a config.json; raises InvalidProblem with pointers into the config."""
    reader = ConfigReader(config)
    check_nesting(reader)
    reader.raise_if_any()
    family = check_architecture(reader, tuple(_FAMILIES))
    reader.raise_if_any()
    assert family is not None
    check_attention_pattern(reader, family)
    transformer = _FAMILIES[family](reader)
    note_harmless(reader)
    reader.raise_if_any()
    return ImportedModel(transformer, tuple(reader.warnings), family)


def _read_llama(reader: ConfigReader) -> dict[str, Any]:
    """Llama and Mistral: gated feed-forward, RMS norms, grouped key/value heads."""
    _refuse_experts(reader)
    mlp = {
        "kind": "dense",
        "hidden_size": reader.size("intermediate_size"),
        "gated": True,
        "bias": reader.flag("mlp_bias", False),
    }
    # LlamaConfig: a missing num_key_value_heads means as many as heads; other families have another default.
    default_kv = reader.size("num_attention_heads") if reader.config.get("model_type") == "llama" else None
    attention = _grouped_attention(reader, default_kv, bias=reader.flag("attention_bias", False))
    return _rms_decoder(reader, [(_layers(reader), attention, mlp)])


def _read_mixtral(reader: ConfigReader) -> dict[str, Any]:
    """Mixtral: intermediate_size is the width of one expert, every layer is routed."""
    mlp = _experts(reader, "num_local_experts", "intermediate_size")
    return _rms_decoder(reader, [(_layers(reader), _grouped_attention(reader, None, bias=False), mlp)])


def _read_qwen3(reader: ConfigReader) -> dict[str, Any]:
    """Qwen3 dense: norms on queries and keys, head_dim of its own."""
    _refuse_experts(reader)
    mlp = {"kind": "dense", "hidden_size": reader.size("intermediate_size"), "gated": True}
    return _rms_decoder(reader, [(_layers(reader), _qwen3_attention(reader), mlp)])


def _read_qwen3_moe(reader: ConfigReader) -> dict[str, Any]:
    """Qwen3 with experts in the layers i with (i + 1) % decoder_sparse_step = 0 that mlp_only_layers does not name."""
    if reader.number_of("shared_expert_intermediate_size", 0):
        reader.refuse("shared_expert_intermediate_size", "not_supported", "Qwen3 has no shared experts")
    attention = _qwen3_attention(reader)
    routed = _experts(reader, "num_experts", "moe_intermediate_size")
    step, dense_layers = reader.size("decoder_sparse_step", 1), reader.indices("mlp_only_layers")
    pattern = [layer not in dense_layers and (layer + 1) % step == 0 for layer in range(_layers(reader))]
    dense: dict[str, Any] = {}
    if not all(pattern):
        dense = {"kind": "dense", "hidden_size": reader.size("intermediate_size"), "gated": True}
    return _rms_decoder(reader, _runs(pattern, attention, dense, routed))


def _read_deepseek(reader: ConfigReader) -> dict[str, Any]:
    """DeepSeek-V2 / V3: latent attention; layers from first_k_dense_replace on, every moe_layer_freq-th, are routed."""
    attention = _latent_attention(reader)
    routed = _experts(reader, "n_routed_experts", "moe_intermediate_size")
    shared = reader.number_of("n_shared_experts", 0) * reader.size("moe_intermediate_size")
    groups = reader.number_of("n_group", 0)
    if groups > 1 and routed["experts"] % groups == 0 and reader.config.get("topk_method") != "greedy":
        routed["groups"] = groups
    elif groups > 1 and routed["experts"] % groups:
        reader.conflict("n_group", f"n_group must divide the {routed['experts']} experts")
    routed["shared_hidden_size"] = shared
    first, step = reader.number_of("first_k_dense_replace"), reader.size("moe_layer_freq", 1)
    pattern = [layer >= first and layer % step == 0 for layer in range(_layers(reader))]
    dense = {"kind": "dense", "hidden_size": reader.size("intermediate_size"), "gated": True}
    transformer = _rms_decoder(reader, _runs(pattern, attention, dense, routed))
    transformer["mtp_layers"] = reader.number_of("num_nextn_predict_layers", 0)
    return transformer


def _read_gpt2(reader: ConfigReader) -> dict[str, Any]:
    """GPT-2 (and GPT-3 of its shape): biases everywhere, learned positions, n_inner null means 4 x n_embd."""
    return _gpt(reader, kv_heads=reader.size("n_head"))


def _read_gpt_bigcode(reader: ConfigReader) -> dict[str, Any]:
    """GPT-BigCode: GPT-2 with one key/value head when multi_query."""
    return _gpt(reader, kv_heads=1 if reader.flag("multi_query", True) else reader.size("n_head"))


_FAMILIES: Final[dict[str, Callable[[ConfigReader], dict[str, Any]]]] = {
    "llama": _read_llama,
    "mistral": _read_llama,
    "mixtral": _read_mixtral,
    "qwen3": _read_qwen3,
    "qwen3_moe": _read_qwen3_moe,
    "gpt2": _read_gpt2,
    "gpt_bigcode": _read_gpt_bigcode,
    "deepseek_v2": _read_deepseek,
    "deepseek_v3": _read_deepseek,
}


def _layers(reader: ConfigReader, key: str = "num_hidden_layers") -> int:
    return reader.size(key, largest=_MAX_LAYERS)


def _grouped_attention(reader: ConfigReader, default_kv: int | None, *, bias: bool, qk_norm: bool = False) -> dict[str, Any]:
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    kv_heads = reader.size("num_key_value_heads", default_kv)
    if heads % kv_heads:
        reader.conflict("num_key_value_heads", f"num_key_value_heads must divide num_attention_heads ({heads})")
    if not reader.given("head_dim") and hidden % heads:
        reader.conflict("num_attention_heads", "num_attention_heads does not divide hidden_size; give head_dim")
    head_dim = reader.size("head_dim", max(1, hidden // heads))
    return {
        "kind": "softmax",
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "bias": bias,
        "qk_norm": qk_norm,
    }


def _qwen3_attention(reader: ConfigReader) -> dict[str, Any]:
    if not reader.given("head_dim"):
        reader.refuse("head_dim", "missing", "head_dim is needed: in Qwen3 it is not hidden_size / heads")
    return _grouped_attention(reader, None, bias=reader.flag("attention_bias", False), qk_norm=True)


def _latent_attention(reader: ConfigReader) -> dict[str, Any]:
    """Latent attention; num_key_value_heads says nothing there. q_lora_rank may be null but must be there."""
    if "q_lora_rank" not in reader.config:
        reader.refuse("q_lora_rank", "missing", "q_lora_rank is needed; null means queries are not compressed")
    if reader.flag("attention_bias", False):
        reader.refuse("attention_bias", "not_supported", "latent attention with biases is not supported", (False,))
    attention: dict[str, Any] = {"kind": "mla", "heads": reader.size("num_attention_heads")}
    if reader.given("q_lora_rank"):
        attention["q_lora_rank"] = reader.size("q_lora_rank")
    for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        attention[key] = reader.size(key)
    return attention


def _experts(reader: ConfigReader, count_key: str, width_key: str) -> dict[str, Any]:
    experts, top_k = reader.size(count_key), reader.size("num_experts_per_tok")
    if top_k > experts:
        reader.refuse("num_experts_per_tok", "out_of_range", f"num_experts_per_tok is more than the {experts} experts")
    return {"kind": "moe", "hidden_size": reader.size(width_key), "gated": True, "experts": experts, "top_k": top_k}


def _refuse_experts(reader: ConfigReader) -> None:
    """A dense family whose config names experts is something else than it says."""
    for key in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"):
        if reader.given(key) and reader.config[key] != 0:
            reader.refuse(key, "not_supported", f"{key} in a config of a dense family is not understood")


def _runs(pattern: list[bool], attention: dict[str, Any], dense: dict[str, Any], routed: dict[str, Any]) -> list[Any]:
    """Blocks of equal layers in a row from the list 'is this layer routed'."""
    runs: list[list[Any]] = []
    for is_routed in pattern:
        if runs and runs[-1][1] is is_routed:
            runs[-1][0] += 1
        else:
            runs.append([1, is_routed])
    return [(count, attention, routed if is_routed else dense) for count, is_routed in runs]


def _rms_decoder(reader: ConfigReader, blocks: list[Any]) -> dict[str, Any]:
    return {
        "hidden_size": reader.size("hidden_size"),
        "vocab_size": reader.size("vocab_size"),
        "tied_embeddings": reader.flag("tie_word_embeddings", False),
        "norm": "rms",
        "blocks": [{"repeat": repeat, "attention": attention, "mlp": mlp} for repeat, attention, mlp in blocks],
    }


def _gpt(reader: ConfigReader, kv_heads: int) -> dict[str, Any]:
    if reader.flag("add_cross_attention", False):
        reader.refuse("add_cross_attention", "not_supported", "cross attention is not supported", (False,))
    activation = reader.config.get("activation_function")
    if isinstance(activation, str) and "glu" in activation.lower():
        reader.refuse("activation_function", "not_supported", f"a gated activation {activation[:40]!r} is not understood here")
    hidden, heads = reader.size("n_embd"), reader.size("n_head")
    if hidden % heads:
        reader.conflict("n_head", "n_head does not divide n_embd")
    head_dim = max(1, hidden // heads)
    attention = {"kind": "softmax", "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "bias": True}
    mlp = {"kind": "dense", "hidden_size": reader.size("n_inner", 4 * hidden), "gated": False, "bias": True}
    return {
        "hidden_size": hidden,
        "vocab_size": reader.size("vocab_size"),
        "tied_embeddings": reader.flag("tie_word_embeddings", True),
        "norm": "layer",
        "learned_positions": reader.size("n_positions"),
        "blocks": [{"repeat": _layers(reader, "n_layer"), "attention": attention, "mlp": mlp}],
    }
