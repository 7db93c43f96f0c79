"""Feed-forward layers of a config: dense, or routed experts with shared ones."""

from __future__ import annotations

from typing import Any

from solver.importers.config_reader import ConfigReader
from solver.importers.hf_families import Family
from solver.importers.hf_sizes import MAX_EXPERTS, Sizes

Mlp = dict[str, Any]


def has_experts(sizes: Sizes) -> bool:
    """The config has routed experts: more than one, or its class has."""
    key = sizes.key("experts")
    if key is not None:
        value = sizes.reader.config[key]
        return isinstance(value, list | bool) or value not in (0, 1)
    reader = sizes.reader
    if isinstance(reader.config.get("ffn_config"), dict):
        return reader.config["ffn_config"].get("moe_num_experts") is not None
    return any(name in reader.defaults for name in _EXPERT_NAMES)


_EXPERT_NAMES = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def dense_mlp(reader: ConfigReader, sizes: Sizes, family: Family, *, beside_experts: bool = False) -> Mlp:
    """The dense feed-forward; `beside_experts`: that of the dense layers among routed ones."""
    key = family.traits.get("dense_width")
    width = _dense_width(reader, sizes, family) if key is None or not beside_experts else _named(reader, sizes, key)
    gated = bool(family.traits.get("gated", True))
    activation = reader.text("activation_function" if reader.given("activation_function") else "hidden_act")
    if not gated and activation is not None and "glu" in activation.lower():
        key = "activation_function" if reader.given("activation_function") else "hidden_act"
        reader.refuse(key, "not_supported", f"a gated activation {activation[:40]!r} is not understood in {family.name}")
    return {"kind": "dense", "hidden_size": width, "gated": gated, "bias": family.says("mlp_bias", reader)}


def _named(reader: ConfigReader, sizes: Sizes, key: str) -> int:
    if sizes.nested and not reader.has(key) and isinstance(reader.defaults.get(key), int):
        reader.assume(key, reader.defaults[key])
        return int(reader.defaults[key])
    return reader.size(key)


def _dense_width(reader: ConfigReader, sizes: Sizes, family: Family) -> int:
    factor = family.traits.get("width_factor")
    if factor is None or sizes.key("width") is not None:
        return sizes.core("width")
    if reader.given("expansion_ratio"):
        factor = reader.size("expansion_ratio", largest=64)
    if sizes.absent("width"):
        reader.assume("feed-forward width", f"{factor} x hidden size")
    return int(factor) * sizes.core("hidden")


def routed_mlp(reader: ConfigReader, sizes: Sizes, family: Family) -> Mlp:
    """Routed experts. intermediate_size is their width in families that have no name of its own for it."""
    if reader.given("ffn_config"):
        return _dbrx_mlp(reader)
    experts, top_k = sizes.core("experts"), sizes.core("top_k")
    if top_k > experts:
        reader.refuse(sizes.key("top_k") or "num_experts_per_tok", "out_of_range", f"more experts per token than the {experts}")
    width = _expert_width(reader, sizes, family)
    mlp: Mlp = {"kind": "moe", "hidden_size": width, "experts": experts, "top_k": top_k}
    mlp["gated"] = bool(family.traits.get("gated", True))
    mlp["shared_hidden_size"] = _shared_width(reader, sizes, family, width)
    if mlp["shared_hidden_size"] and family.says("shared_gate", reader):
        mlp["shared_gate"] = True
    mlp.update(
        {name: True for name, trait in (("bias", "expert_bias"), ("router_bias", "router_bias")) if family.says(trait, reader)}
    )
    groups = _groups(reader, experts)
    if groups:
        mlp["groups"] = groups
    return mlp


def _expert_width(reader: ConfigReader, sizes: Sizes, family: Family) -> int:
    if sizes.key("expert_width") is not None or any(name in reader.defaults for name in ("moe_intermediate_size",)):
        return sizes.core("expert_width")
    if not family.known:
        reader.assume("moe_intermediate_size", "intermediate_size")
    return sizes.core("width")


def _shared_width(reader: ConfigReader, sizes: Sizes, family: Family, expert_width: int) -> int:
    """Sum over the shared experts: given as a width, or as a number of experts of the routed width, or both."""
    count, width = sizes.number("shared_experts"), sizes.number("shared_width")
    if family.traits.get("no_shared") and (count or width):
        key = sizes.key("shared_width") or sizes.key("shared_experts") or ""
        reader.refuse(key, "not_supported", f"{family.name} has no shared experts", (0,))
    if family.traits.get("shared_is_width"):
        return max(1, count) * expert_width
    if width:
        return width * max(1, count)
    return count * expert_width


def _groups(reader: ConfigReader, experts: int) -> int:
    """Groups that limit the routing; greedy routing has none."""
    key = "n_group" if reader.has("n_group") or "n_group" in reader.defaults else "num_expert_group"
    greedy = reader.text("topk_method") == "greedy"
    if reader.value(key) is False:  # Hunyuan
        return 0
    if not reader.has(key) and isinstance(reader.defaults.get(key), int):
        groups = int(reader.defaults[key])
        reader.assume(key, groups)
    else:
        groups = reader.number_of(key)
    if groups > 1 and experts % groups:
        reader.conflict(key, f"{key} must divide the {experts} experts")
        return 0
    return groups if groups > 1 and not greedy else 0


def _dbrx_mlp(reader: ConfigReader) -> Mlp:
    """DBRX: the sizes are in ffn_config."""
    inner = reader.inner("ffn_config")
    experts, top_k = inner.size("moe_num_experts", largest=MAX_EXPERTS), inner.size("moe_top_k", largest=MAX_EXPERTS)
    if top_k > experts:
        inner.refuse("moe_top_k", "out_of_range", f"moe_top_k is more than the {experts} experts")
    return {"kind": "moe", "hidden_size": inner.size("ffn_hidden_size"), "experts": experts, "top_k": top_k, "gated": True}
