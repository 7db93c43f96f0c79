"""Counts of sequence lengths, gathered in bounded memory from any number of them, and merged upward when there are too many."""

from __future__ import annotations

from typing import Final

import numpy as np

#: Longest sequence and most distinct lengths that a problem takes (problem/lengths.py; a test keeps them equal).
MAX_LENGTH_TOKENS: Final = 1 << 30
MAX_DISTINCT_LENGTHS: Final = 65536
#: Lengths up to here are counted exactly.
_DENSE_TOKENS: Final = 1 << 20
#: Longer ones are rounded up to this many significant bits: a relative error below 2^-12.
_SPARSE_BITS: Final = 13


class LengthTable:
    """How many sequences there are of every length; sums are kept exactly beside it."""

    def __init__(self, cut_tokens: int | None = None) -> None:
        """Lengths up to cut_tokens are never rounded above it."""
        self._cut_tokens = cut_tokens
        self._dense = np.zeros(_DENSE_TOKENS + 1, dtype=np.int64)
        self._sparse: dict[int, int] = {}
        self.documents = 0
        self.tokens = 0
        self.squares = 0.0
        self.shortest = MAX_LENGTH_TOKENS
        self.longest = 0

    def add(self, lengths: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Add int64 lengths [n] in 1..MAX_LENGTH_TOKENS, each once or as often as counts [n] says."""
        if not len(lengths):
            return
        assert lengths.min() >= 1
        assert lengths.max() <= MAX_LENGTH_TOKENS
        values, repeats = np.unique(lengths, return_counts=True) if counts is None else (lengths, counts)
        self.documents += int(repeats.sum())
        if counts is None:
            self.tokens += int(lengths.sum())
        else:
            self.tokens += sum(int(v) * int(c) for v, c in zip(values, repeats, strict=True))
        self.squares += float((values.astype(np.float64) ** 2 * repeats).sum())
        self.shortest = min(self.shortest, int(values.min()))
        self.longest = max(self.longest, int(values.max()))
        short = values <= _DENSE_TOKENS
        np.add.at(self._dense, values[short], repeats[short])
        long = values[~short]
        rounded = rounded_up(long, _SPARSE_BITS)
        if self._cut_tokens is not None:
            rounded = np.where(long <= self._cut_tokens, np.minimum(rounded, self._cut_tokens), rounded)
        for value, count in zip(rounded, repeats[~short], strict=True):
            self._sparse[int(value)] = self._sparse.get(int(value), 0) + int(count)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Lengths [k] in increasing order and how many sequences have each [k], both int64."""
        short = np.flatnonzero(self._dense)
        long = np.array(sorted(self._sparse), dtype=np.int64)
        lengths = np.concatenate((short, np.minimum(long, self.longest)))
        counts = np.concatenate((self._dense[short], np.array([self._sparse[int(v)] for v in long], dtype=np.int64)))
        return lengths, counts


def rounded_up(lengths: np.ndarray, bits: int) -> np.ndarray:
    """Lengths [n] rounded up to `bits` significant binary digits: the relative error is below 2^(1 - bits)."""
    _, exponents = np.frexp(lengths.astype(np.float64))
    steps = np.left_shift(np.int64(1), np.maximum(exponents.astype(np.int64) - bits, 0))
    rounded: np.ndarray = -(-lengths // steps) * steps
    return rounded


def merged(
    lengths: np.ndarray, counts: np.ndarray, most: int = MAX_DISTINCT_LENGTHS, cut_tokens: int | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """At most `most` rows: neighbours become the longest of them, and the largest relative error that this makes.

    Lengths up to cut_tokens are never merged with longer ones, so that what fits a limit still does.
    """
    if len(lengths) <= most:
        return lengths, counts, 0.0
    for bits in range(30, 0, -1):
        keys = rounded_up(lengths, bits)
        if cut_tokens is not None:
            keys = np.where(lengths <= cut_tokens, keys, -keys)
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        if len(starts) <= most:
            break
    ends = np.concatenate((starts[1:], [len(lengths)])) - 1
    longest = lengths[ends]
    error = float((np.repeat(longest, ends - starts + 1) / lengths - 1.0).max())
    return longest, np.add.reduceat(counts, starts), error
