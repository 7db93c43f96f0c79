"""Measured runs as published: one typed row per line of a CSV in the header of the measurements README.

Blank cells are None. `unstated` and `see notes` count as blank (DESIGN 3.6); the other fill-ins of that section are made here
too, so that everything behind this module sees one meaning per cell.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from solver.errors import FieldError, InvalidProblem

BLANK = ("", "unstated", "see notes")
REQUIRED = ("row_id", "gpu", "gpus", "layers", "hidden", "seq_len")
MEASURED = (
    "step_time_s",
    "tflops_gpu",
    "mfu_pct",
    "hfu_pct",
    "tokens_s_gpu",
    "peak_mem_gb",
    "mem_kind",
    "status",
)
"""what no prediction may read, beside row_id, source_id and notes"""


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Degrees and sizes are integers, rates floats, the rest text; None where the source is silent."""

    row_id: str
    source_id: str | None = None
    source_ref: str | None = None
    model: str | None = None
    params_b: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    gated_mlp: int | None = None
    vocab: int | None = None
    seq_len: int | None = None
    n_experts: int | None = None
    topk: int | None = None
    moe_ffn: int | None = None
    shared_ffn: int | None = None
    n_dense_layers: int | None = None
    arch_source: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    interconnect: str | None = None
    peak_tflops: float | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sp: int | None = None
    vpp: int | None = None
    mbs: int | None = None
    gbs: int | None = None
    recompute: str | None = None
    zero_stage: int | None = None
    sharding: str | None = None
    precision: str | None = None
    flash_attn: int | None = None
    framework: str | None = None
    task: str | None = None
    step_time_s: float | None = None
    tflops_gpu: float | None = None
    mfu_pct: float | None = None
    hfu_pct: float | None = None
    tokens_s_gpu: float | None = None
    peak_mem_gb: float | None = None
    mem_kind: str | None = None
    status: str | None = None
    flops_convention: str | None = None
    notes: str | None = None
    fault: str | None = None
    """cells that are not what their columns hold"""
    doubt: str | None = None
    """measured cells that are no measurement and count as blank: no prediction may hang on them"""


COLUMNS = tuple(field.name for field in fields(Row) if field.name not in ("fault", "doubt"))
DEGREES = ("gpus", "tp", "pp", "dp", "cp", "ep", "vpp", "mbs", "gbs")
"""whole numbers of which there is at least one"""
_KINDS = {field.name: str(field.type).split(" ")[0] for field in fields(Row)}


def parse_rows(text: str, overrides: Mapping[str, str] | None = None) -> list[Row]:
    """The rows of a CSV document; `overrides` replace whole columns (an empty value blanks one).

    Raises InvalidProblem for columns that are missing or unknown; a row with cells that are not what their columns hold has a
    `fault`, or a `doubt` when they are measured ones.
    """
    replaced = dict(overrides or {})
    unknown = [name for name in replaced if name not in COLUMNS]
    if unknown:
        raise InvalidProblem(tuple(FieldError(f"/{name}", "unknown_field", f"no column {name!r}", COLUMNS) for name in unknown))
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        message = "the header lacks this column"
        raise InvalidProblem(tuple(FieldError(f"/{name}", "missing", message, None) for name in missing))
    return [filled(Row(**_typed({**cells, **replaced}))) for cells in reader]


def _typed(cells: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"row_id": ""}
    faults: list[str] = []
    doubts: list[str] = []
    for name in COLUMNS:
        text = str(cells.get(name) or "").strip()
        if text in BLANK:
            continue
        try:
            values[name] = _cell(text, _KINDS[name], 1 if name in DEGREES else 0)
        except ValueError:
            found = doubts if name in MEASURED else faults
            found.append(f"{name} {text[:80]!r} is not a number of this column")
    return {**values, "fault": "; ".join(faults) or None, "doubt": "; ".join(doubts) or None}


def _cell(text: str, kind: str, least: int) -> Any:
    if kind == "str":
        return text
    value = float(text)
    if not math.isfinite(value) or value < least or (kind == "int" and not value.is_integer()):
        raise ValueError(text)
    return int(value) if kind == "int" else value


def filled(row: Row) -> Row:
    """The fill-ins of DESIGN 3.6 that no choice hangs on."""
    updates: dict[str, Any] = {name: 1 for name in ("cp", "ep") if getattr(row, name) is None}
    if row.sp is None:
        updates["sp"] = 0
    if row.zero_stage is None and (row.sharding or "").startswith("ddp"):
        updates["zero_stage"] = 0
    if row.flash_attn is None and (row.framework or "").startswith("Megatron-DeepSpeed"):
        updates["flash_attn"] = 0
    if row.vpp is None and row.pp == 1:
        updates["vpp"] = 1
    if row.task is None:
        updates["task"] = "pretrain"
    return replace(row, **updates)


def without_measurements(row: Row) -> Row:
    """The row as a prediction sees it."""
    hidden: dict[str, Any] = dict.fromkeys((*MEASURED, "doubt", "source_id", "notes"))
    return replace(row, row_id="", **hidden)


def known(value: int | None) -> int:
    """A cell that the caller has made sure of."""
    assert value is not None, "blank cells are refused or completed before they are used"
    return value


def count_by(rows: Iterable[str]) -> dict[str, int]:
    """How often each text occurs, in order of first appearance."""
    counts: dict[str, int] = {}
    for text in rows:
        counts[text] = counts.get(text, 0) + 1
    return counts
