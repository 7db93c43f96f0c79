"""How full packs of a fixed size get: first-fit decreasing over counts of lengths, without listing the sequences."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.importers.lengths_table import merged

#: Distinct lengths that are packed exactly; more are first merged upward, which can only make packs emptier.
MAX_PACKED_LENGTHS: Final = 4096


def first_fit_decreasing(lengths: np.ndarray, counts: np.ndarray, pack_tokens: int) -> tuple[int, float]:
    """Packs of pack_tokens that first-fit decreasing needs for increasing lengths [k] <= pack_tokens, counts [k].

    The second value is the largest relative error of the lengths it was done with. Packs of equal fill that stand next
    to each other are one run: all sequences of one length are placed at once, first packs first, as first fit would.
    """
    lengths, counts, error = merged(lengths, counts, MAX_PACKED_LENGTHS)
    shortest = int(lengths[0])
    free = np.zeros(0, dtype=np.int64)
    packs = np.zeros(0, dtype=np.int64)
    total = 0
    for length, count in zip(lengths[::-1].tolist(), counts[::-1].tolist(), strict=True):
        free, packs, left = _fill(free, packs, length, count)
        if left:
            each = pack_tokens // length
            opened, rest = divmod(left, each)
            total += opened + (rest > 0)
            new_free = np.array([pack_tokens - each * length, pack_tokens - rest * length], dtype=np.int64)
            new_packs = np.array([opened, 1 if rest else 0], dtype=np.int64)
            free, packs = np.concatenate((free, new_free)), np.concatenate((packs, new_packs))
        usable = (free >= shortest) & (packs > 0)
        free, packs = free[usable], packs[usable]
    return total, error


def _fill(free: np.ndarray, packs: np.ndarray, length: int, count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Place `count` sequences of `length` into runs of packs; the runs afterwards and how many found no place."""
    each = free // length
    room = each * packs
    before = np.cumsum(room) - room
    whole = (before + room <= count) & (each > 0)
    free = np.where(whole, free - each * length, free)
    placed = int(room[whole].sum())
    split = np.flatnonzero((each > 0) & ~whole & (before < count))
    if not len(split):
        return free, packs, count - placed
    at = int(split[0])
    full, rest = divmod(count - placed, int(each[at]))
    parts = [(int(free[at]) - int(each[at]) * length, full), (int(free[at]) - rest * length, 1 if rest else 0)]
    parts.append((int(free[at]), int(packs[at]) - full - (1 if rest else 0)))
    kept = [(f, p) for f, p in parts if p]
    free = np.concatenate((free[:at], np.array([f for f, _ in kept], dtype=np.int64), free[at + 1 :]))
    packs = np.concatenate((packs[:at], np.array([p for _, p in kept], dtype=np.int64), packs[at + 1 :]))
    return free, packs, 0
