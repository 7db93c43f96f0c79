"""The language model of a config: sizes, layers in their order, ends."""

from __future__ import annotations

from typing import Any

from solver.importers.config_reader import ConfigReader
from solver.importers.hf_attention import linear_attention, softmax_attention
from solver.importers.hf_families import Family
from solver.importers.hf_guards import check_structure
from solver.importers.hf_layers import CHUNK, DENSE, FULL, LINEAR, NONE, ROUTED, WINDOW, layer_pattern
from solver.importers.hf_mlp import dense_mlp, routed_mlp
from solver.importers.hf_sizes import Sizes

Transformer = dict[str, Any]


def read_transformer(reader: ConfigReader, family: Family, *, nested: bool = False) -> Transformer:
    """The document of problem.model.Transformer; what is wrong is noted in the reader."""
    reader.defaults = family.defaults
    sizes = Sizes(reader, nested=nested)
    flatten_groups(reader)
    hidden, vocabulary = sizes.core("hidden"), sizes.core("vocabulary")
    pattern = layer_pattern(reader, sizes, family)
    blocks = _blocks(pattern, reader, sizes, family)
    transformer: Transformer = {
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "tied_embeddings": reader.flag("tie_word_embeddings", False),
        "norm": family.traits.get("norm", "rms"),
        "blocks": blocks,
    }
    if family.traits.get("learned_positions"):
        transformer["learned_positions"] = sizes.core("positions") + int(family.traits.get("position_offset", 0))
    if family.says("head_bias", reader):
        transformer["head_bias"] = True
    mtp_layers = sizes.number("mtp_layers")
    if mtp_layers:
        transformer["mtp_layers"] = mtp_layers
    check_structure(reader, family, complete=bool(blocks) and not reader.errors)
    return transformer


def flatten_groups(reader: ConfigReader) -> None:
    """attn_config of DBRX and MPT holds the key/value heads; MPT's learned positions are off under ALiBi."""
    inner = reader.config.get("attn_config")
    if inner is not None and not isinstance(inner, dict):
        reader.refuse("attn_config", "wrong_type", "attn_config must be an object")
    elif inner is not None and inner.get("kv_n_heads") is not None:
        reader.config = {**reader.config, "num_key_value_heads": inner["kv_n_heads"]}


def _blocks(pattern: list[tuple[str, str]], reader: ConfigReader, sizes: Sizes, family: Family) -> list[dict[str, Any]]:
    """Runs of equal layers as blocks."""
    attentions = _attentions({attention for attention, _ in pattern}, reader, sizes, family)
    mlps = _mlps({mlp for _, mlp in pattern}, reader, sizes, family)
    runs: list[list[Any]] = []
    for kinds in pattern:
        if runs and runs[-1][1] == kinds:
            runs[-1][0] += 1
        else:
            runs.append([1, kinds])
    both = _whole_layer(reader, family)
    return [_block(repeat, attentions[attention], mlps[mlp], both) for repeat, (attention, mlp) in runs]


def _whole_layer(reader: ConfigReader, family: Family) -> dict[str, Any]:
    """What a layer with both sublayers has beside them: norms, and whether the sublayers are parallel."""
    parallel = family.says("parallel", reader)
    norms = family.traits.get("norms")
    if family.name in ("falcon", "RefinedWeb", "RefinedWebModel") and parallel:
        norms = _falcon_norms(reader)
    found: dict[str, Any] = {} if norms is None else {"norms": norms}
    return {**found, "parallel": True} if parallel else found


def _falcon_norms(reader: ConfigReader) -> int:
    """One norm for both; the new architecture has two unless num_ln_in_parallel_attn says otherwise."""
    if reader.given("num_ln_in_parallel_attn"):
        return reader.size("num_ln_in_parallel_attn", largest=2)
    return 2 if reader.flag("new_decoder_architecture", False) else 1


def _block(repeat: int, attention: Any, mlp: Any, both: dict[str, Any]) -> dict[str, Any]:
    block = {"repeat": repeat, "attention": attention, "mlp": mlp}
    return {**block, **both} if attention is not None and mlp is not None else block


def _attentions(kinds: set[str], reader: ConfigReader, sizes: Sizes, family: Family) -> dict[str, Any]:
    found: dict[str, Any] = {NONE: None}
    if kinds & {FULL, WINDOW, CHUNK}:
        found[FULL] = softmax_attention(reader, sizes, family)
    if kinds & {WINDOW, CHUNK} and found[FULL]["kind"] != "softmax":
        reader.refuse("layer_types", "not_supported", "windows over latent attention are not supported")
    if WINDOW in kinds:
        found[WINDOW] = {**found[FULL], "window_tokens": sizes.optional("window", 1, "1")}
    if CHUNK in kinds:
        found[CHUNK] = {**found[FULL], "chunk_tokens": _chunk_size(reader, sizes)}
    if LINEAR in kinds:
        found[LINEAR] = linear_attention(reader, sizes, family)
    return found


def _chunk_size(reader: ConfigReader, sizes: Sizes) -> int:
    key = "attention_chunk_size"
    if not reader.has(key) and isinstance(reader.defaults.get(key), int):
        reader.assume(key, reader.defaults[key])
        return int(reader.defaults[key])
    return reader.size(key)


def _mlps(kinds: set[str], reader: ConfigReader, sizes: Sizes, family: Family) -> dict[str, Any]:
    found: dict[str, Any] = {NONE: None}
    if ROUTED in kinds:
        found[ROUTED] = routed_mlp(reader, sizes, family)
    if DENSE in kinds:
        found[DENSE] = dense_mlp(reader, sizes, family, beside_experts=ROUTED in kinds)
    return found
