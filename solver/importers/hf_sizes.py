"""The sizes of a config by meaning: every family has its own name for them.

Null counts as absent. Several names may be there if they agree. A core size must be there in a config of its own; in a nested
config, which `transformers` writes as the difference to the class, the class default stands for an absent one.
"""

from __future__ import annotations

from typing import Any, Final

from solver.importers.config_reader import LARGEST, ConfigReader, short

MAX_LAYERS: Final = 4096
MAX_HEADS: Final = 2**14
MAX_EXPERTS: Final = 2**14

#: Meaning -> the names it goes by, the commonest first, and the largest value taken.
NAMES: Final[dict[str, tuple[tuple[str, ...], int]]] = {
    "hidden": (("hidden_size", "n_embd", "d_model", "model_dim"), LARGEST),
    "layers": (("num_hidden_layers", "n_layer", "n_layers", "num_layers"), MAX_LAYERS),
    "heads": (("num_attention_heads", "n_head", "n_heads", "num_heads"), MAX_HEADS),
    "kv_heads": (("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"), MAX_HEADS),
    "head_dim": (("head_dim", "attention_head_dim", "kv_channels"), LARGEST),
    "width": (("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), LARGEST),
    "vocabulary": (("vocab_size", "padded_vocab_size"), LARGEST),
    "positions": (("n_positions", "max_position_embeddings", "max_seq_len"), LARGEST),
    "experts": (("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), MAX_EXPERTS),
    "top_k": (
        ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k"),
        MAX_EXPERTS,
    ),
    "expert_width": (("moe_intermediate_size", "expert_ffn_hidden_size"), LARGEST),
    "shared_experts": (("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"), MAX_EXPERTS),
    "shared_width": (
        ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"),
        LARGEST,
    ),
    "window": (("sliding_window", "sliding_window_size", "window_size"), LARGEST),
    "mtp_layers": (
        ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers"),
        64,
    ),
}


class Sizes:
    """Sizes by meaning out of one reader; `nested` as told above."""

    def __init__(self, reader: ConfigReader, *, nested: bool = False) -> None:
        self.reader = reader
        self.nested = nested

    def key(self, meaning: str) -> str | None:
        """The name under which the config gives a size; noted as a conflict when two names differ."""
        names, _ = NAMES[meaning]
        given = [name for name in names if self.reader.given(name)]
        self.reader.read.update(name for name in names if self.reader.has(name))
        for other in given[1:]:
            if self.reader.config[other] != self.reader.config[given[0]]:
                message = f"{other} {short(self.reader.config[other])} is not {given[0]} {short(self.reader.config[given[0]])}"
                self.reader.refuse(other, "conflict", message)
        return given[0] if given else None

    def absent(self, meaning: str) -> bool:
        """No name of the size is in the config, not even with null."""
        return not any(self.reader.has(name) for name in NAMES[meaning][0])

    def core(self, meaning: str) -> int:
        """A size that must be there (class default in a nested config)."""
        key = self.key(meaning)
        if key is not None:
            return self._list_or_size(key, NAMES[meaning][1])
        default = self._default(meaning)
        if self.nested and isinstance(default, int) and self.absent(meaning):
            return default
        name = self._name(meaning)
        others = [other for other in NAMES[meaning][0] if other != name]
        self.reader.refuse(
            name, "missing", f"{name} is needed (also read: {', '.join(others)})" if others else f"{name} is needed"
        )
        return 1

    def optional(self, meaning: str, otherwise: int, why: str) -> int:
        """A size; absent: the class default, else `otherwise`. Null: `otherwise`. What was taken is noted, as `why`."""
        key = self.key(meaning)
        if key is not None:
            return self._list_or_size(key, NAMES[meaning][1])
        if self.absent(meaning):
            default = self._default(meaning)
            if isinstance(default, int):
                return default
        self.reader.assume(self._name(meaning), why)
        return otherwise

    def number(self, meaning: str) -> int:
        """A size that may be 0 and is 0 without a class default."""
        key = self.key(meaning)
        if key is not None:
            value = self.reader.config[key]
            return self._list_or_size(key, NAMES[meaning][1]) if isinstance(value, list) else self.reader.number_of(key)
        if not self.absent(meaning):
            self.reader.assume(self._name(meaning), 0)
            return 0
        default = self._default(meaning)
        return default if isinstance(default, int) else 0

    def _list_or_size(self, key: str, largest: int) -> int:
        """Some configs give a size once a layer; taken where all are equal."""
        value = self.reader.config[key]
        if isinstance(value, list):
            values = set(self.reader.numbers(key))
            if len(values) == 1 and 1 <= min(values) <= largest:
                return values.pop()
            self.reader.refuse(key, "not_supported", f"{key} must be one value for all layers, not {short(value)}")
            return 1
        return self.reader.size(key, largest=largest)

    def _default(self, meaning: str) -> Any:
        """The class default of an absent size, which is noted."""
        for name in NAMES[meaning][0]:
            if name in self.reader.defaults:
                self.reader.assume(name, self.reader.defaults[name])
                return self.reader.defaults[name]
        return None

    def _name(self, meaning: str) -> str:
        """The name that this family uses, as far as known."""
        names, _ = NAMES[meaning]
        return next((name for name in names if name in self.reader.defaults or self.reader.has(name)), names[0])
