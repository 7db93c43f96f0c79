"""JSON Lines: a length, the tokens themselves, or text of which only the number of characters is used.

The text is measured and dropped line by line: it is neither kept nor repeated in a message.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from solver.importers.lengths_json import strict_json
from solver.importers.lengths_read import LENGTH_NAMES, TEXT_NAMES, TOKEN_NAMES, Gathered, Wish
from solver.importers.lengths_source import Source, refuse, refuse_length
from solver.importers.lengths_table import MAX_LENGTH_TOKENS


def read_jsonl(source: Source, wish: Wish, gathered: Gathered) -> None:
    """One object, list of tokens or length a line."""
    for number, lines in source.blocks():
        lengths = []
        numbers = []
        for at, line in enumerate(lines):
            if line.strip():
                value = strict_json(line, f"line {number + at}")
                lengths.append(_length(value, wish, f"line {number + at}", gathered))
                numbers.append(number + at)
        for length, place in zip(lengths, numbers, strict=True):
            if not 1 <= length <= MAX_LENGTH_TOKENS:
                refuse_length(place, "line")
        gathered.table.add(np.array(lengths, dtype=np.int64))


def _length(value: Any, wish: Wish, where: str, gathered: Gathered) -> int:
    """Tokens of one line."""
    if isinstance(value, dict):
        value = value.get(wish.column) if wish.column is not None else _member(value, where)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        refuse("wrong_type", f"{where}: no length, tokens or text was found", (*LENGTH_NAMES, *TOKEN_NAMES, *TEXT_NAMES))
    if isinstance(value, int):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | str) for item in value):
        return len(value)
    return _text_tokens(value, wish, where, gathered)


def _member(value: dict[str, Any], where: str) -> Any:
    """The member to measure: lengths before tokens before text."""
    for name in (*LENGTH_NAMES, *TOKEN_NAMES, *TEXT_NAMES):
        if name in value:
            return value[name]
    return refuse("missing", f"{where}: no member is called a length, tokens or text; name one as `column`", tuple(value)[:20])


def _text_tokens(value: Any, wish: Wish, where: str, gathered: Gathered) -> int:
    """Text is measured in characters, with the stated number of them to a token."""
    if wish.characters_per_token is None:
        refuse("missing", f"{where}: only text was found; state how many characters make a token (characters_per_token)")
    gathered.note_estimate(wish.characters_per_token)
    return max(1, math.ceil(_characters(value, where) / wish.characters_per_token))


def _characters(value: Any, where: str) -> int:
    """Characters of a text, or of the contents of a list of messages."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(_characters(item, where) for item in value)
    if isinstance(value, dict):
        contents = [value[key] for key in ("content", "value", "text") if isinstance(value.get(key), str | list)]
        return sum(_characters(item, where) for item in contents)
    return refuse("wrong_type", f"{where}: neither text nor messages")
