"""Rows: how the global batch divides, and how a row is cut for context and sequence parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import Any, Final

import numpy as np

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.rules import Bools, Columns, Rule


def sequence_multiple(tp: int, cp: int, sequence_parallel: bool) -> int:
    """Tokens that every sequence, or document of a pack, is padded to a multiple of: 2 cp for the zig-zag halves of context
    parallelism, cp x tp where sequence parallelism cuts what a context rank has; both: their least common multiple."""
    zigzag = 2 * cp if cp > 1 else 1
    return lcm(zigzag, cp * tp) if sequence_parallel and tp > 1 else zigzag


def _padded_row(facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    """The nearest row lengths that can be cut."""
    unit = sequence_multiple(row["tp"], row["cp"], row["sequence_parallel"] == 1)
    below = facts.row_tokens // unit * unit
    return {"sequence_multiple": unit, "max_sequence_length": [below, below + unit] if below else [unit]}


def _whole_batches(facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    """The nearest batches that the replicas share equally."""
    unit = row["dp"] * row["mbs"]
    if facts.rows is None:
        return {}
    below = facts.rows // unit * unit
    return {"gbs": sorted({value for value in (below, below + unit if below < facts.rows else below) if value})}


def _documents_need_no_padding(facts: Facts, columns: Columns) -> Bools:
    """Documents of a pack are padded one by one."""
    cut = (columns["cp"] > 1) | ((columns["sequence_parallel"] == 1) & (columns["tp"] > 1))
    return np.asarray(~cut | (not facts.packs))


RULES: Final = (
    Rule(
        "MC09", "refused", ("micro_batches", "dp", "mbs"),
        "dp {dp} x mbs {mbs} x micro-batches {micro_batches} give {step_rows} sequences a step, {rows} are asked for",
        holds.batch_agrees, _whole_batches, fires=("arguments", "build"),
    ),
    Rule("MC10", "refused", ("cp",), "sequences of {row_tokens} tokens do not divide by 2 x cp {cp}", holds.rows_cut_in_zigzag,
         _padded_row, fires=("arguments",)),
    Rule(
        "MC11", "refused", ("cp", "tp"),
        "with sequence parallel, sequences of {row_tokens} tokens must divide by cp {cp} x tp {tp}",
        holds.rows_cut_for_sequence_parallel, _padded_row, fires=("first_step",),
    ),
    Rule(
        "MC11-documents", "changed", ("cp", "tp"),
        "every document of a pack is padded for cp {cp} and sequence parallel tp {tp}",
        _documents_need_no_padding, _padded_row, fires=("first_step",),
    ),
    Rule("MC12", "changed", ("sequence_parallel",), "sequence parallel is switched off at tp 1; a TransformerConfig refuses it",
         holds.sequence_parallel_has_tp, fires=("arguments", "config")),
    Rule("MC13", "refused", (), "{row_tokens} tokens exceed the {learned_positions} positions", holds.positions_suffice,
         fires=("arguments",)),
)  # fmt: skip
