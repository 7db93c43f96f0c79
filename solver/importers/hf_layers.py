"""Which layer is what: full, windowed, chunked or linear attention, and dense or routed feed-forward, by the rules of configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from solver.importers.config_reader import ConfigReader, short
from solver.importers.hf_families import Family
from solver.importers.hf_mlp import has_experts
from solver.importers.hf_sizes import Sizes

FULL, WINDOW, CHUNK, LINEAR, NONE = "full", "window", "chunk", "linear", "none"
DENSE, ROUTED = "dense", "routed"

#: Words of layer_types and layers_block_type.
_KINDS: Final = {
    "full_attention": FULL,
    "attention": FULL,
    "sliding_attention": WINDOW,
    "chunked_attention": CHUNK,
    "linear_attention": LINEAR,
    "mamba": LINEAR,
    "mamba2": LINEAR,
}
#: Letters of hybrid_override_pattern (Nemotron-H): attention and feed-forward of a layer.
_LETTERS: Final = {"M": (LINEAR, NONE), "*": (FULL, NONE), "-": (NONE, DENSE), "E": (NONE, ROUTED)}
_BLOCK_WORDS: Final = {
    "mamba": (LINEAR, NONE),
    "linear_attention": (LINEAR, NONE),
    "attention": (FULL, NONE),
    "full_attention": (FULL, NONE),
    "mlp": (NONE, DENSE),
    "moe": (NONE, ROUTED),
}

#: Rules that a list of the layers' kinds, which is the more explicit, stands above.
_ATTENTION_RULES: Final = ("full_attention_interval", "attn_layer_period", "attn_layer_indices")
_MLP_RULES: Final = ("interleave_moe_layer_step",)


def layer_pattern(reader: ConfigReader, sizes: Sizes, family: Family) -> list[tuple[str, str]]:
    """(attention, feed-forward) of every layer; empty where the config was refused."""
    if family.traits.get("one_sublayer"):
        return _sublayers(reader, sizes)
    count = sizes.core("layers")
    attention = _attention_kinds(reader, sizes, family, count)
    feed_forward = [NONE] * count if family.traits.get("only_linear") else _mlp_kinds(reader, sizes, count)
    return [] if reader.errors else list(zip(attention, feed_forward, strict=True))


def _sublayers(reader: ConfigReader, sizes: Sizes) -> list[tuple[str, str]]:
    """Nemotron-H: one letter, or one word, a layer."""
    pattern = reader.text("hybrid_override_pattern")
    given: Sequence[str] = pattern.replace("|", "") if pattern is not None else reader.words("layers_block_type")
    known = _LETTERS if pattern is not None else _BLOCK_WORDS
    key = "hybrid_override_pattern" if pattern is not None else "layers_block_type"
    if not given:
        message = "hybrid_override_pattern (or layers_block_type) is needed: it says what each layer is"
        reader.refuse("hybrid_override_pattern", "missing", message)
        return []
    unknown = next((item for item in given if item not in known), None)
    if unknown is not None:
        reader.refuse(key, "not_supported", f"{key} holds {short(unknown)}", tuple(known))
        return []
    if sizes.key("layers") is not None:
        _same_count(reader, key, len(given), sizes.core("layers"))
    return [known[item] for item in given]


# ------------------------------------------------------------------------------------------------------------------- attention
def _attention_kinds(reader: ConfigReader, sizes: Sizes, family: Family, count: int) -> list[str]:
    """By the list of the config, else by the period of its hybrid, else by the rule of the family's windows."""
    if family.traits.get("only_linear"):
        return [LINEAR] * count
    listed = _listed_kinds(reader, count)
    if listed is not None:
        reader.read.update(_ATTENTION_RULES)
    periodic = _hybrid_kinds(reader, family, count) if listed is None else listed
    window = _window(reader, sizes, family)
    kinds = periodic if periodic is not None else _window_kinds(reader, family, count, window)
    if WINDOW in kinds and window is None:
        reader.refuse("sliding_window", "missing", "sliding_window is needed: some layers have a window")
    covering = window is not None and covers_all(reader, window)
    return [FULL if kind == WINDOW and covering else kind for kind in kinds]


def _listed_kinds(reader: ConfigReader, count: int) -> list[str] | None:
    """layer_types, layers_block_type or attn_type_list; none when the config has no list."""
    for key in ("layer_types", "layers_block_type"):
        words = reader.words(key)
        if words:
            unknown = next((word for word in words if word not in _KINDS), None)
            if unknown is not None:
                reader.refuse(key, "not_supported", f"{key} holds {short(unknown)}", tuple(_KINDS))
                return [FULL] * count
            _same_count(reader, key, len(words), count)
            return [_KINDS[word] for word in words]
    types = reader.numbers("attn_type_list")
    if types:
        _same_count(reader, "attn_type_list", len(types), count)
        return [FULL if kind == 1 else LINEAR for kind in types]
    return _neo_kinds(reader, count)


def _neo_kinds(reader: ConfigReader, count: int) -> list[str] | None:
    """attention_types of GPT-Neo: [[["global", "local"], 12]]."""
    value = reader.value("attention_types")
    if value is None:
        return None
    kinds: list[str] = []
    for item in value if isinstance(value, list) else [None]:
        match item:
            case [[*words], int(times)] if 0 < times <= count and all(word in ("global", "local") for word in words):
                kinds.extend([FULL if word == "global" else WINDOW for word in words] * times)
            case _:
                reader.refuse("attention_types", "wrong_type", 'attention_types must be like [[["global", "local"], 12]]')
                return [FULL] * count
    _same_count(reader, "attention_types", len(kinds), count)
    return kinds


def _hybrid_kinds(reader: ConfigReader, family: Family, count: int) -> list[str] | None:
    """Attention every n-th layer and a recurrence between; none when there is no recurrence."""
    if reader.given("linear_attn_config"):
        full = reader.inner("linear_attn_config").numbers("full_attn_layers")
        return [FULL if layer + 1 in full else LINEAR for layer in range(count)]
    if reader.given("attn_layer_indices"):
        full = reader.numbers("attn_layer_indices")
        return [FULL if layer in full else LINEAR for layer in range(count)]
    if reader.given("attn_layer_period") or "attn_layer_period" in reader.defaults:
        period = _period(reader, "attn_layer_period", 1)
        offset = _counted(reader, "attn_layer_offset")
        return [FULL if layer % period == offset else LINEAR for layer in range(count)]
    if reader.given("full_attention_interval") or family.traits.get("linear") == "delta":
        period = _period(reader, "full_attention_interval", family.traits.get("full_every", 4))
        return [LINEAR if (layer + 1) % period else FULL for layer in range(count)]
    if family.traits.get("linear") and family.traits["linear"] != "lightning":
        reader.refuse("layer_types", "missing", "layer_types (or another list of the layers' kinds) is needed")
    elif family.name == "minimax_text_01":
        reader.refuse("attn_type_list", "missing", "attn_type_list is needed: it says which layers are full attention")
    elif family.traits.get("linear"):
        reader.assume("layer_types", "a linear layer, then a full one")
        return [FULL if layer % 2 else LINEAR for layer in range(count)]
    return None


def _window(reader: ConfigReader, sizes: Sizes, family: Family) -> int | None:
    """Width of the window in force, none when there is none."""
    rule = family.traits.get("window")
    switched = rule in ("upper", "switched")
    if (switched or reader.has("use_sliding_window")) and not reader.flag("use_sliding_window", not switched):
        sizes.key("window")
        return None
    key = sizes.key("window")
    if key is not None:
        return reader.size(key)
    width = sizes.number("window") if sizes.absent("window") else 0
    if not width and rule is not None:
        reader.assume("sliding_window", "none")
    return width or None


def _window_kinds(reader: ConfigReader, family: Family, count: int, window: int | None) -> list[str]:
    """The rule of the family; a window in a config without a rule holds for all layers."""
    rule = family.traits.get("window")
    if rule == "chunks":
        return _chunk_kinds(reader, family, count)
    if window is None:
        return [FULL] * count
    if rule == "upper":
        first = _counted(reader, "max_window_layers")
        return [WINDOW if layer >= first else FULL for layer in range(count)]
    period = _pattern_period(reader, family)
    if period:
        return [WINDOW if (layer + 1) % period else FULL for layer in range(count)]
    return [WINDOW] * count


def _pattern_period(reader: ConfigReader, family: Family) -> int:
    """Every n-th layer is full: sliding_window_pattern (a number, or letters as LLLG), else the family's n; 0 for never."""
    value = reader.value("sliding_window_pattern")
    if isinstance(value, str) and value and set(value) <= {"L", "G"} and value.endswith("G") and value.count("G") == 1:
        return len(value)
    if value is not None:
        return reader.size("sliding_window_pattern", largest=4096)
    if family.traits.get("window") != "pattern":
        return 0
    if not reader.has("layer_types"):
        reader.assume("layer_types", f"every {family.traits['full_every']}. layer full, the others with a window")
    return int(family.traits["full_every"])


def _chunk_kinds(reader: ConfigReader, family: Family, count: int) -> list[str]:
    """Llama 4: chunks in the layers with rotary positions, every n-th has none and is full."""
    rotary = reader.numbers("no_rope_layers")
    if rotary:
        _same_count(reader, "no_rope_layers", len(rotary), count)
        return [CHUNK if kind else FULL for kind in rotary]
    period = _period(reader, "no_rope_layer_interval", family.traits["full_every"])
    if reader.has("attention_chunk_size") and reader.value("attention_chunk_size") is None:
        reader.assume("attention_chunk_size", "none")
        return [FULL] * count
    return [CHUNK if (layer + 1) % period else FULL for layer in range(count)]


def covers_all(reader: ConfigReader, window: int) -> bool:
    """A window as wide as the longest sequence cuts nothing."""
    longest = reader.config.get("max_position_embeddings")
    return isinstance(longest, int) and not isinstance(longest, bool) and 0 < longest <= window


# ---------------------------------------------------------------------------------------------------------------- feed-forward
def _mlp_kinds(reader: ConfigReader, sizes: Sizes, count: int) -> list[str]:
    """Every rule that the config (or its class) has must let a layer be routed."""
    if not has_experts(sizes):
        return [DENSE] * count
    listed = _listed_mlps(reader, count)
    if listed is not None:
        reader.read.update(_MLP_RULES)
        return listed
    dense = set(reader.numbers("mlp_only_layers"))
    first, freq = _counted(reader, "first_k_dense_replace"), _period(reader, "moe_layer_freq", 1)
    step, interleave = _period(reader, "decoder_sparse_step", 1), _period(reader, "interleave_moe_layer_step", 1)
    every, offset = _period(reader, "expert_layer_period", 1), _counted(reader, "expert_layer_offset")
    start, interval = _counted(reader, "moe_layer_start_index"), _period(reader, "moe_layer_interval", 1)
    end = _last_routed(reader, count)

    def routed(layer: int) -> bool:
        by_count = (layer + 1) % step == 0 and (layer + 1) % interleave == 0 and (layer + 1) % interval == 0
        by_index = layer % freq == 0 and layer % every == offset % every
        return by_count and by_index and layer not in dense and layer >= first and start <= layer <= end

    return [ROUTED if routed(layer) else DENSE for layer in range(count)]


def _listed_mlps(reader: ConfigReader, count: int) -> list[str] | None:
    """mlp_layer_types, moe_layers, or moe_layer_freq as a list; none when the config has no list."""
    words = reader.words("mlp_layer_types")
    if words:
        unknown = next((word for word in words if word not in ("dense", "sparse")), None)
        if unknown is not None:
            reader.refuse("mlp_layer_types", "not_supported", f"mlp_layer_types holds {short(unknown)}", ("dense", "sparse"))
        _same_count(reader, "mlp_layer_types", len(words), count)
        return [ROUTED if word == "sparse" else DENSE for word in words]
    layers = reader.numbers("moe_layers")
    if layers:
        return [ROUTED if layer in layers else DENSE for layer in range(count)]
    if isinstance(reader.config.get("moe_layer_freq"), list):
        flags = reader.numbers("moe_layer_freq")
        _same_count(reader, "moe_layer_freq", len(flags), count)
        return [ROUTED if flag else DENSE for flag in flags]
    return None


def _last_routed(reader: ConfigReader, count: int) -> int:
    value = reader.value("moe_layer_end_index")
    if value is None and ("moe_layer_end_index" in reader.defaults or reader.has("moe_layer_end_index")):
        reader.assume("moe_layer_end_index", "the last layer")
    if value is None or (value == -1 and not isinstance(value, bool)):
        return count - 1
    return reader.number_of("moe_layer_end_index")


# -------------------------------------------------------------------------------------------------------------------- helpers
def _period(reader: ConfigReader, key: str, otherwise: int) -> int:
    """A period; absent or null: the class default, else `otherwise`."""
    if reader.given(key):
        return reader.size(key, largest=4096)
    default = reader.defaults.get(key)
    if isinstance(default, int) or otherwise != 1 or reader.has(key):
        reader.assume(key, default if isinstance(default, int) else otherwise)
    return int(default) if isinstance(default, int) else otherwise


def _counted(reader: ConfigReader, key: str) -> int:
    """A number of layers; absent: the class default, else 0."""
    if not reader.has(key) and isinstance(reader.defaults.get(key), int):
        reader.assume(key, reader.defaults[key])
        return int(reader.defaults[key])
    return reader.number_of(key)


def _same_count(reader: ConfigReader, key: str, found: int, layers: int) -> None:
    if found != layers:
        reader.conflict(key, f"{key} is for {found} layers, the model has {layers}")
