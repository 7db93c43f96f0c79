"""Attention of a config: softmax with grouped heads, latent (MLA), and linear recurrences of several kinds."""

from __future__ import annotations

from typing import Any, Final

from solver.importers.config_reader import LARGEST, ConfigReader, short
from solver.importers.hf_families import Family
from solver.importers.hf_sizes import MAX_HEADS, Sizes

Attention = dict[str, Any]


def softmax_attention(reader: ConfigReader, sizes: Sizes, family: Family) -> Attention:
    """Multi-head attention; latent where the config has a kv_lora_rank or the family is latent."""
    if reader.given("kv_lora_rank") or family.traits.get("latent"):
        return _latent_attention(reader, sizes)
    heads = sizes.core("heads")
    kv_heads = _kv_heads(reader, sizes, family, heads)
    if heads % kv_heads:
        reader.conflict(sizes.key("kv_heads") or "num_key_value_heads", f"{kv_heads} key/value heads do not divide {heads} heads")
    bias = family.says("qkv_bias", reader)
    attention: Attention = {
        "kind": "softmax",
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": _head_dim(reader, sizes, heads),
        "bias": bias,
        "qk_norm": family.says("qk_norm", reader),
    }
    output_bias = family.says("output_bias", reader)
    if output_bias != bias:
        attention["output_bias"] = output_bias
    attention.update({key: True for key in ("output_gate", "sinks") if family.says(key, reader)})
    return attention


def _kv_heads(reader: ConfigReader, sizes: Sizes, family: Family, heads: int) -> int:
    """Grouped; one where `multi_query` (Falcon: unless its new architecture) says so; absent or null: as many as heads."""
    if family.name == "chatglm" and not reader.flag("multi_query_attention", False):
        return heads
    renewed = "new_decoder_architecture" in reader.defaults and reader.flag("new_decoder_architecture", False)
    if not renewed and family.says("multi_query", reader):
        return 1
    return sizes.optional("kv_heads", heads, "the number of heads")


def _head_dim(reader: ConfigReader, sizes: Sizes, heads: int) -> int:
    hidden = sizes.core("hidden")
    named = sizes.key("head_dim") is not None or (sizes.absent("head_dim") and "head_dim" in reader.defaults)
    if not named and hidden % heads:
        reader.conflict("num_attention_heads", f"{heads} heads do not divide the hidden size {hidden}; give head_dim")
    return sizes.optional("head_dim", max(1, hidden // heads), "hidden size / heads")


def _latent_attention(reader: ConfigReader, sizes: Sizes) -> Attention:
    """Latent attention; num_key_value_heads says nothing there. q_lora_rank null: queries are not compressed."""
    sizes.key("kv_heads")
    if reader.flag("attention_bias", False):
        reader.refuse("attention_bias", "not_supported", "latent attention with biases is not supported", (False,))
    attention: Attention = {"kind": "mla", "heads": sizes.core("heads")}
    if reader.given("q_lora_rank"):
        attention["q_lora_rank"] = reader.size("q_lora_rank")
    elif reader.has("q_lora_rank"):
        reader.read.add("q_lora_rank")
        reader.assume("q_lora_rank", "none, queries are not compressed")
    else:
        reader.refuse("q_lora_rank", "missing", "q_lora_rank is needed; null means queries are not compressed")
    for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        attention[key] = reader.size(key)
    return attention


# --------------------------------------------------------------------------------------------------------- linear recurrences
def linear_attention(reader: ConfigReader, sizes: Sizes, family: Family) -> Attention:
    """The recurrence of the layers that are not softmax attention; which one by the family, else by the keys."""
    kind = family.traits.get("linear") or next((kind for kind, key in _MARKS if reader.given(key)), None)
    if kind is None:
        reader.refuse("layer_types", "not_supported", "layers of a recurrence whose sizes are not in the config")
        return {"kind": "linear", "heads": 1, "kv_heads": 1, "head_dim": 1}
    return _LINEAR[kind](reader, sizes)


def _first(reader: ConfigReader, *keys: str) -> str:
    """The first of several names that the config gives, else the one with a class default, else the first."""
    given = next((key for key in keys if reader.given(key)), None)
    return given or next((key for key in keys if key in reader.defaults), keys[0])


def _sized(reader: ConfigReader, *keys: str, largest: int = LARGEST, default: int | None = None) -> int:
    """A size under one of several names; absent: class default or `default`, noted."""
    key = _first(reader, *keys)
    if not reader.has(key) and isinstance(reader.defaults.get(key, default), int):
        reader.assume(key, reader.defaults.get(key, default))
        return int(reader.defaults.get(key, default))
    return reader.size(key, largest=largest)


def _delta(reader: ConfigReader, sizes: Sizes) -> Attention:
    """Gated delta rule (Qwen3-Next, Qwen3.5): a decay and a beta per value head, gate of value width."""
    heads = _sized(reader, "linear_num_value_heads", largest=MAX_HEADS)
    return {
        "kind": "linear",
        "heads": heads,
        "kv_heads": _dividing(reader, heads, "linear_num_key_heads"),
        "head_dim": _sized(reader, "linear_value_head_dim"),
        "key_head_dim": _sized(reader, "linear_key_head_dim"),
        "conv_kernel": _sized(reader, "linear_conv_kernel_dim"),
        "decays_per_head": 2,
    }


def _mamba2(reader: ConfigReader, sizes: Sizes) -> Attention:
    """Mamba-2: heads x head width of values, groups x state size of keys and queries."""
    heads = _sized(reader, "mamba_num_heads", "mamba_n_heads", "num_heads", largest=MAX_HEADS)
    return {
        "kind": "linear",
        "heads": heads,
        "kv_heads": _dividing(reader, heads, "n_groups", "mamba_n_groups"),
        "head_dim": _mamba_head_dim(reader, sizes, heads),
        "key_head_dim": _sized(reader, "ssm_state_size", "mamba_d_state", "state_size"),
        "conv_kernel": _sized(reader, "conv_kernel", "mamba_d_conv"),
        "chunk_tokens": _sized(reader, "chunk_size", "mamba_chunk_size"),
        "bias": reader.flag(_first(reader, "mamba_proj_bias", "use_bias"), False),
    }


def _mamba_head_dim(reader: ConfigReader, sizes: Sizes, heads: int) -> int:
    key = _first(reader, "mamba_head_dim", "mamba_d_head", "head_dim")
    if reader.given(key) and reader.value(key) != "auto":
        return reader.size(key)
    if not reader.has(key) and "mamba_expand" not in reader.defaults:
        return _sized(reader, key)
    return _inner_width(reader, sizes) // heads or 1


def _inner_width(reader: ConfigReader, sizes: Sizes) -> int:
    return _sized(reader, "mamba_expand", "expand") * sizes.core("hidden")


#: Head width under which a Mamba-1 layer, which has none, is written.
_MAMBA1_HEAD: Final = 64


def _mamba1(reader: ConfigReader, sizes: Sizes) -> Attention:
    """Mamba-1 as a recurrence with one key group; its low-rank step projection is not among the sizes."""
    inner = _inner_width(reader, sizes)
    if inner % _MAMBA1_HEAD:
        reader.conflict("mamba_expand", f"an inner width of {inner} is not a multiple of {_MAMBA1_HEAD}")
    reader.value("mamba_dt_rank")
    reader.warnings.append("Mamba-1 layers are counted without the low-rank projections of their step (under 4 % of a layer)")
    return {
        "kind": "linear",
        "heads": max(1, inner // _MAMBA1_HEAD),
        "kv_heads": 1,
        "head_dim": _MAMBA1_HEAD,
        "key_head_dim": _sized(reader, "mamba_d_state"),
        "conv_kernel": _sized(reader, "mamba_d_conv"),
        "bias": reader.flag("mamba_proj_bias", False),
    }


def _lightning(reader: ConfigReader, sizes: Sizes) -> Attention:
    """Lightning attention (MiniMax): as many key as value heads, a gate, fixed decays."""
    heads = sizes.core("heads")
    return {
        "kind": "linear",
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _head_dim(reader, sizes, heads),
        "decays_per_head": 0,
        "chunk_tokens": _sized(reader, "block_size", default=256),
    }


def _kda(reader: ConfigReader, sizes: Sizes) -> Attention:
    """Kimi delta attention: channel-wise decay and gate through low-rank projections, which are not among the sizes."""
    reader.warnings.append("Kimi delta attention is counted without its low-rank decay and gate (4 % of such a layer)")
    old = reader.inner("linear_attn_config") if reader.given("linear_attn_config") else None
    keys = ("num_heads", "head_dim", "short_conv_kernel_size") if old else _KDA_KEYS
    heads, head_dim, kernel = (_sized(old or reader, key, largest=MAX_HEADS) for key in keys)
    return {
        "kind": "linear",
        "heads": heads,
        "kv_heads": heads,
        "head_dim": head_dim,
        "conv_kernel": kernel,
        "gate": False,
    }


_KDA_KEYS: Final = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")


def _dividing(reader: ConfigReader, heads: int, *keys: str) -> int:
    """Key heads (or groups), which must divide the heads."""
    groups = _sized(reader, *keys, largest=MAX_HEADS)
    if heads % groups:
        reader.conflict(_first(reader, *keys), f"{short(groups)} does not divide the {heads} heads of the recurrence")
    return groups


_LINEAR: Final = {"delta": _delta, "mamba2": _mamba2, "mamba1": _mamba1, "lightning": _lightning, "kda": _kda}
#: The key that tells the kind of recurrence in a family that is not known.
_MARKS: Final = (
    ("delta", "linear_num_value_heads"),
    ("kda", "linear_attn_config"),
    ("kda", "linear_num_heads"),
    ("mamba1", "mamba_dt_rank"),
    ("mamba2", "mamba_num_heads"),
    ("mamba2", "mamba_n_heads"),
)
