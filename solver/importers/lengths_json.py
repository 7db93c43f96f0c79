"""JSON: lists of lengths, the length forms of a problem, summaries with bins of powers of two, tokens per bucket."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import numpy as np

from solver.importers.lengths_binned import bins_of
from solver.importers.lengths_read import Gathered, Wish
from solver.importers.lengths_source import Source, checked, refuse

_MAX_JSON_BYTES: Final = 1 << 26
_MAX_COUNT: Final = 2**53
_BUCKET: Final = re.compile(r"(\d{1,9})([kKmM]?)(?:-(\d{1,9})([kKmM]?)|(\+))")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20}


def read_json(source: Source, wish: Wish, gathered: Gathered) -> None:
    """The whole document at once; see the module for the shapes."""
    value = strict_json(source.text(_MAX_JSON_BYTES), "the file")
    if isinstance(value, list):
        _read_list(value, gathered)
    elif isinstance(value, dict):
        _read_object(value, wish, gathered)
    else:
        refuse("wrong_type", "a list or an object is expected")


def strict_json(raw: bytes, what: str) -> Any:
    """The value of a JSON text; NaN, infinities, duplicate meaning and over-long numbers are refused."""

    def no_constant(name: str) -> Any:
        raise ValueError(name)

    try:
        return json.loads(raw, parse_constant=no_constant)
    except (ValueError, RecursionError):
        refuse("invalid", f"{what} is not JSON that can be used")


def integers(values: list[Any], what: str) -> np.ndarray:
    """A list of whole numbers as int64 [n]."""
    for at, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 2**62:
            refuse("wrong_type", f"{what} {at + 1}: not a whole number")
    return np.array(values, dtype=np.int64)


def _read_list(values: list[Any], gathered: Gathered) -> None:
    """[length, ...] or [[length, count], ...]."""
    if values and all(isinstance(row, list) and len(row) == 2 for row in values):
        lengths = checked(integers([row[0] for row in values], "row"), 1, "row")
        counts = integers([row[1] for row in values], "row")
        wrong = np.flatnonzero((counts < 1) | (counts > _MAX_COUNT))
        if len(wrong):
            refuse("out_of_range", f"row {int(wrong[0]) + 1}: a count is from 1 to 2^53")
        gathered.table.add(lengths, counts)
        return
    gathered.table.add(checked(integers(values, "item"), 1, "item"))


def _read_object(value: Mapping[str, Any], wish: Wish, gathered: Gathered) -> None:
    """The object, or the member that `column` names, by the members it has."""
    if wish.column is not None and isinstance(value.get(wish.column), dict | list):
        value = value[wish.column]
    if isinstance(value, dict) and isinstance(value.get("histogram"), dict):
        value = value["histogram"]
    if isinstance(value, list):
        _read_list(value, gathered)
    elif isinstance(value.get("counts"), list) and isinstance(value.get("edges"), list):
        _read_edges(value["edges"], value["counts"], gathered, half_open=False)
    elif isinstance(value.get("counts"), list):
        _read_list(value["counts"], gathered)
    elif isinstance(value.get("log2_bins"), list) and isinstance(value.get("count"), list):
        _read_summary(value, gathered)
    elif isinstance(value.get("tokens"), dict):
        _read_buckets(value["tokens"], wish, gathered)
    else:
        _refuse_object(value)


def _refuse_object(value: Mapping[str, Any]) -> NoReturn:
    """No lengths here; perhaps one member has them."""
    names = tuple(key for key, item in value.items() if isinstance(item, dict | list))
    if names and all(isinstance(value[name], dict) for name in names):
        refuse("missing", "the file holds several distributions; name one as `column`", names)
    refuse("wrong_type", "no lengths, counts or histogram were found in the object")


def _read_edges(edges: list[Any], counts: list[Any], gathered: Gathered, *, half_open: bool) -> None:
    """Bins (lo, hi], or [lo, hi) when half_open."""
    ends, numbers = integers(edges, "edge").tolist(), integers(counts, "bin").tolist()
    if len(ends) != len(numbers) + 1:
        refuse("conflict", "edges must be one longer than counts")
    if half_open:
        ends = [max(end - 1, 0) for end in ends]
    gathered.bins = bins_of(list(zip(ends, ends[1:], numbers, strict=False)))


def _read_summary(value: Mapping[str, Any], gathered: Gathered) -> None:
    """Bins [2^i, 2^(i+1)) with documents and, if there, tokens of each: then every bin stands at its mean, rounded up."""
    edges, counts = value["log2_bins"], value["count"]
    tokens, longest = value.get("tokens_per_bin"), value.get("max")
    if not isinstance(tokens, list) or not isinstance(longest, int):
        _read_edges(edges, counts, gathered, half_open=True)
        return
    documents = integers(counts, "bin")
    sums = integers(tokens, "bin")
    if len(documents) != len(sums) or (documents < 0).any() or (sums < documents).any() or not documents.any():
        refuse("conflict", "count and tokens_per_bin do not agree")
    filled = documents > 0
    checked(np.array([longest], dtype=np.int64), 1, "max")
    means = np.minimum(-(-sums[filled] // documents[filled]), longest)
    # The last bin gives one document to the longest length, so that the maximum is not lost.
    last = int(documents[filled][-1])
    rows = [*zip(means.tolist(), documents[filled].tolist(), strict=True)]
    rest = (int(sums[filled][-1]) - longest) / (last - 1) if last > 1 else 0.0
    rows[-1:] = [(longest, 1)] + ([(max(1, math.ceil(rest)), last - 1)] if last > 1 else [])
    lengths, numbers = np.array(rows, dtype=np.int64).T
    gathered.table.add(checked(lengths, 1, "bin"), numbers)
    gathered.warn("bins stand at their mean length: tokens are right, long documents within a bin are not told apart")


def _read_buckets(buckets: Mapping[str, Any], wish: Wish, gathered: Gathered) -> None:
    """{"8k-16k": tokens}: as many documents at the upper edge as make the tokens; an open last bucket ends at the limit."""
    rows: list[tuple[int, int, int]] = []
    for name, tokens in buckets.items():
        found = _BUCKET.fullmatch(name)
        if found is None:
            refuse("wrong_type", "a bucket is called like 8k-16k or 1M+")
        if isinstance(tokens, bool) or not isinstance(tokens, int | float) or not 0 <= tokens < 1e18:
            refuse("wrong_type", "the tokens of a bucket are a number that is not negative")
        low = int(found[1]) * _UNITS[found[2].lower()]
        if found[5]:
            if wish.max_tokens is None or wish.max_tokens <= low:
                refuse("missing", f"the last bucket has no upper end; give a maximum above {low} tokens")
            high = wish.max_tokens
        else:
            high = int(found[3]) * _UNITS[found[4].lower()]
        rows.append((low, high, round(tokens / max(high, 1))))
    gathered.warn("the file counts tokens: documents were taken to be as long as the upper end of their bucket")
    gathered.bins = bins_of(rows)
