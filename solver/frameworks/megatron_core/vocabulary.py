"""MC08: the vocabulary is padded so that every tensor parallel rank holds an equal, aligned part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.rules import Bools, Columns, Rule

VOCAB_DIVISIBLE_BY: Final = 128


def padded_vocab_size(vocab_size: int, tp: int, divisible_by: int = VOCAB_DIVISIBLE_BY) -> int:
    """The next multiple of `divisible_by` x tp (--make-vocab-size-divisible-by)."""
    unit = divisible_by * tp
    return -(-vocab_size // unit) * unit


def _needs_no_padding(facts: Facts, columns: Columns) -> Bools:
    return holds.divides(VOCAB_DIVISIBLE_BY * columns["tp"], facts.vocab_size)


def _padded(facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    return {"padded_vocab_size": padded_vocab_size(facts.vocab_size, row["tp"])}


RULES: Final = (
    Rule(
        "MC08", "changed", ("tp",), "the vocabulary of {vocab_size} is padded at tp {tp}", _needs_no_padding, _padded,
        fires=("arguments",),
    ),
)  # fmt: skip
