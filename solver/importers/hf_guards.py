"""Signs in a config.json that the model is not what its family name says; each is refused by field and value."""

from __future__ import annotations

from typing import Any, Final

from solver.importers.config_reader import ConfigReader

#: The causal language model of each family; heads of another kind (classifiers, ...) are refused.
ARCHITECTURES: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_bigcode": "GPTBigCodeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
_NESTED: Final = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "vision_config",
    "audio_config",
    "encoder",
    "decoder",
)
_OTHER_LAYERS: Final = (
    "hybrid_override_pattern",
    "full_attention_interval",
    "attn_type_list",
    "attn_layer_period",
    "layers_block_type",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "mamba_num_heads",
    "ssm_state_size",
    "state_size",
    "cross_attention_layers",
    "index_topk",
    "interleave_moe_layer_step",
)
_WINDOW_KEYS: Final = ("sliding_window", "sliding_window_size", "sliding_window_pattern", "attention_chunk_size")
#: Families whose window is off unless use_sliding_window says otherwise.
_WINDOW_OFF: Final = ("qwen3", "qwen3_moe")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_nesting(reader: ConfigReader) -> None:
    """Several models in one config (vision, audio, encoder-decoder) are not one transformer."""
    for key in _NESTED:
        if isinstance(reader.config.get(key), dict):
            kind = reader.config.get("model_type")
            reader.refuse(key, "not_supported", f"a nested {key} (model_type {_short(kind)}) is not supported")
    if reader.config.get("is_encoder_decoder") is True:
        reader.refuse("is_encoder_decoder", "not_supported", "encoder-decoder models are not supported", (False,))


def check_architecture(reader: ConfigReader, families: tuple[str, ...]) -> str | None:
    """The family by model_type, or by the architecture when there is no model_type; both must agree."""
    model_type, names = reader.config.get("model_type"), reader.config.get("architectures")
    family = model_type if model_type is not None else _family_of(names)
    if family is None:
        reader.refuse("model_type", "missing", "model_type is needed", families)
        return None
    if not isinstance(family, str) or family not in families:
        message = f"model_type {_short(family)} is not supported; supported: {', '.join(families)}"
        reader.refuse("model_type", "not_supported", message, families)
        return None
    if names is not None and names != [ARCHITECTURES[family]]:
        message = f"architectures {_short(names)} is not the {ARCHITECTURES[family]} of model_type {family!r}"
        reader.refuse("architectures", "not_supported", message, (ARCHITECTURES[family],))
    return family


def _family_of(names: Any) -> str | None:
    if isinstance(names, list) and len(names) == 1:
        return next((family for family, name in ARCHITECTURES.items() if name == names[0]), None)
    return None


def check_attention_pattern(reader: ConfigReader, family: str) -> None:
    """Windows in force, and layers that are not full softmax attention, are refused."""
    for key in _OTHER_LAYERS:
        if reader.given(key):
            message = f"{key} {_short(reader.config[key])}: layers of another kind are not supported"
            reader.refuse(key, "not_supported", message)
    layer_types = reader.config.get("layer_types")
    if layer_types is not None:
        kinds = layer_types if isinstance(layer_types, list) else [layer_types]
        others = [kind for kind in kinds if kind != "full_attention"]
        if others:
            message = f"layer_types holds {_short(others[0])}; only full_attention is supported"
            reader.refuse("layer_types", "not_supported", message, ("full_attention",))
    if not reader.flag("use_sliding_window", family not in _WINDOW_OFF):
        return
    for key in _WINDOW_KEYS:
        if reader.given(key) and not _covers_all(reader, reader.config[key]):
            message = f"{key} {_short(reader.config[key])} is in force; attention windows are not supported"
            reader.refuse(key, "not_supported", message, (None,))


def _covers_all(reader: ConfigReader, window: Any) -> bool:
    """A window as wide as the longest sequence cuts nothing."""
    longest = reader.config.get("max_position_embeddings")
    numbers = all(isinstance(v, int) and not isinstance(v, bool) for v in (window, longest))
    return numbers and window >= longest


def note_harmless(reader: ConfigReader) -> None:
    """Warn of what is in the config but not in the sizes."""
    stored = reader.config.get("quantization_config")
    if isinstance(stored, dict):
        method = _short(stored.get("quant_method"))
        reader.warnings.append(
            f"quantization_config ({method}) describes the stored weights; the training precision is the workload's"
        )
    longest = reader.config.get("max_position_embeddings")
    if isinstance(longest, int) and not isinstance(longest, bool):
        reader.warnings.append(
            f"max_position_embeddings {longest} bounds the sequence length the model was made for; it is not enforced"
        )
    for key in ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop"):
        value = reader.config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            reader.warnings.append(f"{key} {value} is not taken over; set workload.kernels.dropout")
