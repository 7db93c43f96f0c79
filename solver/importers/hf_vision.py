"""Vision towers of a config: an encoder of image patches, and the projector that makes tokens of the language model of them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any, Final

from solver.importers.config_reader import ConfigReader, short
from solver.importers.hf_sizes import MAX_HEADS, MAX_LAYERS

_PARENT_DEFAULT: Final = {"projector": "text"}
_LEAST_RATIO: Final = 1 / 32


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(resources.files(__name__.rpartition(".")[0]).joinpath("towers.toml").read_text(encoding="utf-8"))


def parent_of(model_type: Any) -> dict[str, Any]:
    """How a vision-language model of that type joins its parts."""
    return dict(_tables()["parent"].get(model_type if isinstance(model_type, str) else "", _PARENT_DEFAULT))


def is_parent(model_type: str | None) -> bool:
    """A vision-language model whose parts are known."""
    return model_type in _tables()["parent"]


def vision_module(reader: ConfigReader, text_hidden: int) -> tuple[dict[str, Any], float]:
    """The tower as a transformer of patches, and how many language tokens a patch becomes."""
    parent = parent_of(reader.config.get("model_type"))
    inner = reader.inner("vision_config")
    inner.text("model_type")
    tower = _tower(inner, reader.config.get("model_type"))
    inner.defaults = tower.get("defaults", {})
    hidden = _hidden(inner)
    transformer: dict[str, Any] = {
        "hidden_size": hidden,
        "norm": tower["norm"],
        "blocks": _blocks(inner, tower, hidden),
        "embedding_features": _patch_values(inner) + (1 if tower.get("patch_bias") else 0),
    }
    positions = _positions(inner, tower)
    if positions:
        transformer["learned_positions"] = positions
    merge = _merge(reader, inner, parent)
    pool = merge if "tokens_key" in parent else 1  # a mean over patches, not patches joined
    transformer.update(_projector(inner, parent, hidden, merge // pool, text_hidden))
    if pool > 1:
        transformer["output_pool"] = pool
    return transformer, 1.0 / merge


def _tower(inner: ConfigReader, parent_type: Any) -> dict[str, Any]:
    known = _tables()["tower"]
    own_type = inner.config.get("model_type")
    for name in (own_type,) if own_type is not None else (parent_type,):
        base = name.removesuffix("_vision") if isinstance(name, str) else ""
        base = _SAME_TOWER.get(base, base)
        if base in known and base != "default":
            return dict(known[base])
    name = inner.config.get("model_type", parent_type)
    inner.warnings.append(f"the vision tower {short(name)} is not known; read by its keys, with layer norms, biases and no gate")
    return dict(known["default"])


#: Towers of the same shape.
_SAME_TOWER: Final = {
    "qwen3_vl_moe": "qwen3_vl",
    "qwen3_5_moe": "qwen3_5",
    "internvl": "intern_vit_6b",
    "siglip": "siglip_vision_model",
}


def _named(inner: ConfigReader, *names: str) -> str | None:
    return next((name for name in names if inner.given(name)), None)


def _size(inner: ConfigReader, *names: str, largest: int = 2**24, default: int | None = None) -> int:
    """A size under one of several names; absent: `default`, noted, or refused."""
    key = _named(inner, *names)
    default = inner.defaults.get(names[0], default)
    if key is None and default is not None:
        inner.assume(f"vision_config.{names[0]}", default)
        return default
    return inner.size(key or names[0], largest=largest)


def _said(inner: ConfigReader, key: str) -> bool:
    """The tower has the key, or its class does."""
    return inner.has(key) or key in inner.defaults


def _numbers(inner: ConfigReader, key: str) -> tuple[int, ...]:
    """A list of layers; absent or null: that of the class, noted."""
    if inner.given(key) or key not in inner.defaults:
        return inner.numbers(key)
    inner.assume(f"vision_config.{key}", str(inner.defaults[key]))
    return tuple(inner.defaults[key])


def _hidden(inner: ConfigReader) -> int:
    """embed_dim where it is given: Qwen2-VL calls the width of the language model hidden_size."""
    return _size(inner, "embed_dim", "hidden_size") if inner.given("embed_dim") else _size(inner, "hidden_size", "width")


def _side(inner: ConfigReader, key: str, default: int | None = None) -> int:
    """A side in pixels, which may be given twice."""
    value = inner.config.get(key)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1] and isinstance(value[0], int):
        return int(value[0])
    return _size(inner, key, default=default)


def _patch_values(inner: ConfigReader) -> int:
    """Numbers of one patch: channels x frames x side x side."""
    channels = _size(inner, "in_channels", "num_channels", "in_chans", largest=64, default=3)
    frames = _size(inner, "temporal_patch_size", largest=64) if _said(inner, "temporal_patch_size") else 1
    return channels * frames * _side(inner, "patch_size") ** 2


def _blocks(inner: ConfigReader, tower: dict[str, Any], hidden: int) -> list[dict[str, Any]]:
    layers = _size(inner, "num_hidden_layers", "depth", "n_layers", largest=MAX_LAYERS)
    heads = _size(inner, "num_attention_heads", "num_heads", largest=MAX_HEADS)
    if hidden % heads and not inner.given("head_dim"):
        inner.conflict("num_attention_heads", f"{heads} heads do not divide the hidden size {hidden} of the tower")
    head_dim = inner.size("head_dim") if inner.given("head_dim") else max(1, hidden // heads)
    attention = {"kind": "softmax", "heads": heads, "head_dim": head_dim, "causal": False, "bias": tower["bias"]}
    mlp = {"kind": "dense", "hidden_size": _width(inner, hidden), "gated": tower["gated"], "bias": tower["bias"]}
    window = _window(inner, tower)
    if window is None:
        return [{"repeat": layers, "attention": attention, "mlp": mlp}]
    full = set(_numbers(inner, tower["full_key"]))
    return [
        {"repeat": len(list(run)), "attention": attention if is_full else {**attention, "chunk_tokens": window}, "mlp": mlp}
        for is_full, run in groupby(range(layers), key=full.__contains__)
    ]


def _width(inner: ConfigReader, hidden: int) -> int:
    if inner.given("intermediate_size") or not inner.given("mlp_ratio"):
        return inner.size("intermediate_size")
    ratio = inner.value("mlp_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64:
        inner.refuse("mlp_ratio", "wrong_type", f"mlp_ratio must be a number above 0, not {short(ratio)}")
        return 1
    return max(1, round(ratio * hidden))


def _window(inner: ConfigReader, tower: dict[str, Any]) -> int | None:
    """Patches of one window; attention stays within it, as within a chunk."""
    key = tower.get("window_key")
    if key is None:
        return None
    return max(1, _size(inner, key) // _side(inner, "patch_size")) ** 2


def _positions(inner: ConfigReader, tower: dict[str, Any]) -> int:
    rule = tower.get("positions")
    if rule is None:
        return 0
    if rule != "grid":
        return inner.size(rule)
    side = _side(inner, "image_size") // _side(inner, "patch_size")
    return max(1, side * side) + (1 if tower.get("class_token") else 0)


def _merge(reader: ConfigReader, inner: ConfigReader, parent: dict[str, Any]) -> int:
    """Patches that become one token."""
    if "merge_key" in parent:
        value = inner.config.get(parent["merge_key"])
        side = value[0] if isinstance(value, list) and value and isinstance(value[0], int) else None
        return (side or inner.size(parent["merge_key"], largest=32)) ** 2
    if "parent_merge_key" in parent:
        return reader.size(parent["parent_merge_key"], largest=32) ** 2
    if "downsample_key" in parent:
        return _downsampled(reader, parent["downsample_key"])
    if "tokens_key" in parent:
        side = _side(inner, "image_size") // _side(inner, "patch_size")
        return max(1, side * side // reader.size(parent["tokens_key"]))
    return 1


def _downsampled(reader: ConfigReader, key: str) -> int:
    ratio = reader.value(key)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not _LEAST_RATIO <= ratio <= 1:
        reader.refuse(key, "missing" if ratio is None else "wrong_type", f"{key} must be a fraction of at least {_LEAST_RATIO}")
        return 1
    return round(1 / float(ratio * ratio))


def _projector(inner: ConfigReader, parent: dict[str, Any], hidden: int, merge: int, text_hidden: int) -> dict[str, Any]:
    """Width, merge and number of the output projections."""
    through = {"merged": hidden * merge, "text": text_hidden, "linear": 0}[parent["projector"]]
    count = 1 + len(_numbers(inner, "deepstack_visual_indexes"))
    found: dict[str, Any] = {"output_features": text_hidden, "output_merge": merge}
    found.update({"output_hidden_size": through} if through else {})
    return {**found, "output_count": count} if count > 1 else found
