"""Histograms as other tools write them: closed or half-open bins, brought to the problem's bins (lo, hi]."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solver.importers.lengths_source import refuse
from solver.importers.lengths_table import MAX_DISTINCT_LENGTHS, MAX_LENGTH_TOKENS, LengthTable


@dataclass(frozen=True)
class Bins:
    """counts[i] documents have lengths in (edges[i], edges[i + 1]]."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]

    def document(self) -> dict[str, list[int]]:
        """The histogram of a problem."""
        return {"edges": list(self.edges), "counts": list(self.counts)}

    def fill(self, table: LengthTable) -> None:
        """Every document at the upper edge of its bin, as the problem counts it."""
        rows = [(edge, count) for edge, count in zip(self.edges[1:], self.counts, strict=True) if count]
        lengths, counts = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        table.add(lengths, counts)


def bins_of(intervals: list[tuple[int, int, int]]) -> Bins:
    """Bins from rows (low, high, count). Where a row starts at the end of the one before, bins are (low, high]; where it
    starts one later they are [low, high]; gaps become empty bins."""
    if not intervals:
        refuse("missing", "the histogram has no bins")
    if len(intervals) > MAX_DISTINCT_LENGTHS // 2:
        refuse("too_large", f"more than {MAX_DISTINCT_LENGTHS // 2} bins")
    rows = sorted(intervals)
    shared = any(before[1] == after[0] for before, after in pairwise(rows))
    edges: list[int] = []
    counts: list[int] = []
    for low, high, count in rows:
        start = low if shared else max(0, low - 1)
        if not 0 <= start < high <= MAX_LENGTH_TOKENS or count < 0:
            refuse("out_of_range", f"a bin lies within 0..{MAX_LENGTH_TOKENS}, its end above its start, its count not negative")
        if not edges:
            edges.append(start)
        elif start < edges[-1]:
            refuse("conflict", "two bins overlap")
        elif start > edges[-1]:
            edges.append(start)
            counts.append(0)
        edges.append(high)
        counts.append(count)
    if sum(counts) < 1:
        refuse("missing", "all bins are empty")
    return Bins(tuple(edges), tuple(counts))
