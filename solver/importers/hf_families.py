"""Families of Hugging Face configs: traits and class defaults, one TOML table a `model_type` in the folder beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from solver.catalog.names import nearest
from solver.importers.config_reader import ConfigReader, short

#: What a class for another task than causal language modelling ends in.
_OTHER_TASKS: Final = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMaskedLM",
    "ForImageClassification",
    "RewardModel",
)


@dataclass(frozen=True)
class Family:
    """`traits` hold what the model class fixes; `known` is false where they were guessed from the keys of the config."""

    name: str
    architectures: tuple[str, ...]
    traits: Mapping[str, Any]
    defaults: Mapping[str, Any]
    known: bool = True

    def says(self, trait: str, reader: ConfigReader) -> bool:
        """A trait that is true, false, or told by a key of the config."""
        value = self.traits.get(trait, False)
        return reader.flag(value, False) if isinstance(value, str) else bool(value)


@cache
def families() -> dict[str, Family]:
    """All families by model_type. Treat as read only."""
    files = [f for f in resources.files(__name__.rpartition(".")[0]).joinpath("families").iterdir() if f.name.endswith(".toml")]
    tables: dict[str, dict[str, Any]] = {}
    for file in sorted(files, key=lambda f: f.name):
        tables.update(tomllib.loads(file.read_text(encoding="utf-8")))
    return {name: _family(name, tables) for name in sorted(tables)}


def _family(name: str, tables: Mapping[str, dict[str, Any]]) -> Family:
    merged = _merged(name, tables)
    inner = ("architectures", "defaults", "custom")
    traits = {key: value for key, value in merged.items() if key not in inner}
    return Family(name, tuple(tables[name].get("architectures", ())), traits, merged.get("defaults", {}))


def _merged(name: str, tables: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    own = tables[name]
    base = _merged(own["like"], tables) if "like" in own else {}
    return {**base, **{key: value for key, value in own.items() if key != "like"}}


def find_family(reader: ConfigReader) -> Family | None:
    """The family by model_type, or by its class where there is no model_type; guessed from the keys where neither is known."""
    model_type, names = reader.text("model_type"), reader.words("architectures")
    task = next((name for name in names if name.endswith(_OTHER_TASKS)), None)
    if task is not None:
        reader.refuse("architectures", "not_supported", f"{task} is not a language model")
        return None
    if model_type is None and not names:
        if not reader.errors:
            reader.refuse("model_type", "missing", "model_type is needed", sorted(families()))
        return None
    family = _by_type(model_type, names)
    if family is None:
        return _guessed(model_type or names[0], reader)
    others = {other.name: other for other in families().values() if set(names) & set(other.architectures)}
    if others and family.name not in others and family.architectures:
        message = f"architectures {short(list(names))} is not a class of model_type {family.name!r}"
        reader.refuse("architectures", "conflict", message, family.architectures)
    return family


def _by_type(model_type: str | None, names: tuple[str, ...]) -> Family | None:
    if model_type in families():
        return families()[model_type]
    by_class = [family for family in families().values() if set(names) & set(family.architectures)]
    return by_class[0] if len(by_class) == 1 else None


def _guessed(name: str, reader: ConfigReader) -> Family:
    """Traits by what the keys say: the kind of norm by its epsilon, a gate by the activation, biases by their flags."""
    config = reader.config
    rms = not any(config.get(key) is not None for key in ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"))
    rms = rms or config.get("rms_norm_eps") is not None
    activation = next((config[k] for k in ("hidden_act", "activation_function") if isinstance(config.get(k), str)), "silu")
    gated = "glu" in activation.lower() or activation.lower() in ("silu", "swish") or rms
    traits: dict[str, Any] = {"norm": "rms" if rms else "layer", "gated": gated}
    for trait, keys in _FLAGS.items():
        traits[trait] = next((key for key in keys if isinstance(config.get(key), bool)), False)
    close = nearest(name, families())
    told = ", ".join(f"{trait} {value if isinstance(value, str) else str(value).lower()}" for trait, value in traits.items())
    hint = f" (nearest known: {close})" if close else ""
    reader.warnings.append(f"model_type {name[:60]!r} is not known{hint}; read by its keys, and taken without being told: {told}")
    return Family(name, (), traits, {}, known=False)


#: Traits of unknown families and the keys that may tell them.
_FLAGS: Final = {
    "qkv_bias": ("attention_bias", "use_qkv_bias", "add_qkv_bias", "qkv_bias", "use_bias", "bias"),
    "output_bias": ("attention_out_bias", "attention_bias", "use_bias", "bias"),
    "mlp_bias": ("mlp_bias", "use_bias", "bias"),
    "head_bias": ("lm_head_bias",),
    "qk_norm": ("use_qk_norm", "qk_layernorm"),
    "parallel": ("use_parallel_residual", "parallel_attn"),
}
