"""Hugging Face config.json -> the sizes of a model, read by meaning. What cannot be expressed is refused, never dropped.

A config of one model becomes a `transformer`; one with a vision tower becomes two `modules`. Families: the folder `families`;
a model_type that is not there is read by its keys, with a warning of what was taken without being told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from solver.importers.config_reader import ConfigReader, short
from solver.importers.hf_families import Family, families, find_family
from solver.importers.hf_guards import note_harmless
from solver.importers.hf_text import read_transformer
from solver.importers.hf_vision import is_parent, parent_of, vision_module

#: Where the language model of a nested config is.
_TEXT_KEYS: Final = ("text_config", "llm_config", "language_config")
#: Parts that are read neither as language nor as vision.
_OTHER_PARTS: Final = ("audio_config", "talker_config", "encoder", "decoder", "qformer_config", "perceiver_config")


@dataclass(frozen=True)
class ImportedModel:
    """`model` is a document of problem.model.Model (`transformer`, or `modules`); `warnings` say what was assumed or left out."""

    model: dict[str, Any]
    warnings: tuple[str, ...]
    family: str


def import_hf_config(config: Mapping[str, Any]) -> ImportedModel:
    """The sizes in a config.json; raises InvalidProblem with pointers into the config."""
    reader = ConfigReader(config)
    if not config:
        reader.refuse("model_type", "missing", "model_type is needed", sorted(families()))
    if isinstance(config.get("thinker_config"), Mapping):
        reader = reader.inner("thinker_config")
    reader.raise_if_any()
    for key in _OTHER_PARTS:
        if isinstance(reader.config.get(key), Mapping):
            reader.refuse(key, "not_supported", f"{key}: only language and vision are read")
    model, family = _read(reader)
    note_harmless(reader)
    reader.raise_if_any()
    warnings = tuple(dict.fromkeys(reader.warnings))
    if reader.assumptions:
        warnings = (f"not in the config (or null), taken as the class has it: {', '.join(reader.assumptions)}", *warnings)
    return ImportedModel(model, warnings, family)


def _read(reader: ConfigReader) -> tuple[dict[str, Any], str]:
    """The model and the name of the language family."""
    text_key = next((key for key in _TEXT_KEYS if reader.config.get(key) is not None), None)
    has_vision = reader.config.get("vision_config") is not None
    model_type = reader.text("model_type")
    if text_key is None and not (has_vision or is_parent(model_type)):
        family = find_family(reader)
        return {"transformer": read_transformer(reader, family) if family else {}}, family.name if family else ""
    if model_type is None:
        reader.refuse("model_type", "missing", "model_type is needed: it says how vision and language are joined")
    elif not is_parent(model_type):
        reader.warnings.append(f"model_type {short(model_type)} is not known; vision joins language through two projections")
    inner = reader if text_key is None else reader.inner(text_key)
    family = _text_family(inner, model_type, nested=text_key is not None)
    if family is None:
        return {}, ""
    language = read_transformer(inner, family, nested=text_key is not None)
    if text_key is not None:
        _ends_of_parent(reader, inner, language)
        note_harmless(inner)
    if not has_vision:
        reader.warnings.append("there is no vision_config: the language model alone was read")
        return {"transformer": language}, family.name
    return {"modules": _modules(reader, language)}, family.name


def _text_family(inner: ConfigReader, model_type: str | None, *, nested: bool) -> Family | None:
    """By the model_type of the nested config; else what the parent's class takes."""
    parent = parent_of(model_type)
    own_type = nested and inner.config.get("model_type") is not None
    if own_type or "text" not in parent:
        return find_family(inner)
    if nested:
        inner.assume("model_type of the language model", parent["text"])
    return families()[parent["text"]]


def _ends_of_parent(reader: ConfigReader, inner: ConfigReader, language: dict[str, Any]) -> None:
    """tie_word_embeddings of the whole config counts, where its class is one of transformers; else the nested one, if given."""
    parent = parent_of(reader.config.get("model_type"))
    nested_wins = inner.given("tie_word_embeddings") and not parent.get("native")
    if reader.given("tie_word_embeddings") and not nested_wins:
        language["tied_embeddings"] = reader.flag("tie_word_embeddings", False)
    elif "tied" in parent and not inner.given("tie_word_embeddings"):
        language["tied_embeddings"] = parent["tied"]
        reader.assume("tie_word_embeddings", parent["tied"], instead=True)
    for key, taken in (("tie_word_embeddings", language["tied_embeddings"]), ("vocab_size", language["vocab_size"])):
        other = next((r.config[key] for r in (reader, inner) if r.given(key) and r.config[key] != taken), None)
        if other is not None:
            reader.warnings.append(
                f"{key} is {short(other)} in one place of the config and {short(taken)} in another, which is taken"
            )


def _modules(reader: ConfigReader, language: dict[str, Any]) -> list[dict[str, Any]]:
    vision, ratio = vision_module(reader, language["hidden_size"])
    return [
        {"name": "vision", "transformer": vision},
        {"name": "language", "inputs": [{"from": "vision", "tokens_ratio": ratio}], "transformer": language},
    ]
