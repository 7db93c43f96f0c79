"""Blank cells of a layout (mbs, vpp, recompute, ZeRO, gbs): the legal values, of which the predicted-fastest that fits is taken.

Recompute is not free to be worse than needed: of two completions that differ in it only, the one that recomputes more counts only
where the other does not fit, as nobody recomputes what fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from solver.validate.frameworks import framework_use
from solver.validate.layouts import BLOCKS
from solver.validate.rows import Row, known

COMPLETED = ("mbs", "vpp", "recompute", "zero_stage", "gbs")
RECOMPUTE = ("none", "selective:cheap", "full")
BLOCK_SHARES = ("1/4", "1/3", "1/2", "2/3", "3/4", "1/1")
LARGEST_MBS = 64
MOST_ROUNDS = 8
"""a blank batch has up to this many micro-batches per pipeline stage"""


def shares_of_blocks(row: Row) -> Iterator[Row]:
    """A row that recomputes an unstated share of its blocks: the least share that fits is what a user sets."""
    for share in BLOCK_SHARES:
        yield replace(row, recompute=f"{BLOCKS} {share}")


def blanks(row: Row) -> tuple[str, ...]:
    """The cells to complete."""
    return tuple(name for name in COMPLETED if getattr(row, name) is None)


def completions(row: Row) -> Iterator[Row]:
    """Rows with every blank filled, in a fixed order; nothing when a size that the values hang on is missing."""
    if row.pp is None or row.tp is None or row.cp is None or not row.gpus or not row.layers:
        return
    replicas = max(1, row.gpus // (row.tp * row.pp * row.cp))
    choices = [_values(row, name, replicas) for name in ("zero_stage", "vpp", "mbs", "recompute")]
    for zero, vpp, mbs, recompute in product(*choices):
        filled = replace(row, zero_stage=zero, vpp=vpp, mbs=mbs, recompute=recompute)
        if filled.gbs is not None:
            yield filled
            continue
        rounds = 1
        while rounds <= MOST_ROUNDS:
            yield replace(filled, gbs=replicas * mbs * row.pp * rounds)
            rounds *= 2


def _values(row: Row, name: str, replicas: int) -> list[Any]:
    stated = getattr(row, name)
    if stated is not None:
        return [stated]
    if name == "recompute":
        return list(RECOMPUTE)
    use = framework_use(row)
    if name == "zero_stage":
        return list(use.zero_levels if use else (0, 1))
    if name == "vpp":
        return _virtual_stages(row) if use is None or use.interleaves else [1]
    rows = (row.gbs or replicas * LARGEST_MBS) // replicas
    return [size for size in (1, 2, 4, 8, 16, 32, LARGEST_MBS) if rows % size == 0]


def _virtual_stages(row: Row) -> list[int]:
    layers, stages = known(row.layers), known(row.pp)
    if stages == 1:
        return [1]
    whole = (layers, layers + 2)
    return [v for v in range(1, layers // stages + 1) if v == 1 or any(count % (v * stages) == 0 for count in whole)]


def worth_counting(rows: list[Row], fits: list[bool]) -> list[bool]:
    """Which completions count: those that fit and recompute no more than needed (all legal ones when none fits)."""
    if not any(fits):
        return [True] * len(rows)
    least: dict[Row, int] = {}
    levels = [RECOMPUTE.index(row.recompute) if row.recompute in RECOMPUTE else 0 for row in rows]
    for row, level, fit in zip(rows, levels, fits, strict=True):
        key = replace(row, recompute=None)
        if fit:
            least[key] = min(level, least.get(key, level))
    return [fit and level == least[replace(row, recompute=None)] for row, level, fit in zip(rows, levels, fits, strict=True)]
