"""The model of a row: from its columns, or the preset of its name where the columns cannot say it (windows, linear layers)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from solver.catalog import UnknownName, find_model
from solver.validate.refusal import Refused
from solver.validate.rows import Row, known

NOT_IN_COLUMNS = ("sliding window", "linear attention", "mla")
"""words of arch_source that name a structure the columns have no place for"""
HEAD_WIDTH = 128
WITHOUT_BIAS = ("mpt", "nemotron")
"""families of ungated models whose public configurations have no biases"""


def with_assumed_sizes(row: Row, notes: list[str], published: dict[str, int]) -> Row:
    """Heads (those that the machine's runs of that hidden size have, else of a width near 128 that tp divides) and ffn (4 x
    hidden) of a plain model whose source leaves them out."""
    updates: dict[str, Any] = {}
    hidden = row.hidden
    if row.heads is None and hidden:
        tp = row.tp or 1
        fits = [(abs(hidden / count - HEAD_WIDTH), count) for count in range(tp, hidden + 1, tp) if hidden % count == 0]
        if str(hidden) in published or fits:
            updates["heads"] = published.get(str(hidden)) or min(fits)[1]
            notes.append(f"heads not stated: {updates['heads']} assumed")
    if row.ffn is None and hidden and not row.gated_mlp:
        updates["ffn"] = 4 * hidden
        notes.append(f"ffn not stated: {updates['ffn']} assumed")
    return replace(row, **updates)


def model_document(row: Row) -> dict[str, Any]:
    """`model` of the problem document; raises Refused when sizes are missing."""
    if any(word in (row.arch_source or "").lower() for word in NOT_IN_COLUMNS):
        return _preset(row)
    return {"transformer": _from_columns(row)}


def _preset(row: Row) -> dict[str, Any]:
    try:
        preset = find_model(row.model or "")
    except UnknownName as error:
        raise Refused(f"the columns do not say all of {row.model} ({row.arch_source}) and there is no preset: {error}") from error
    hidden = preset.transformer["hidden_size"]
    if hidden != row.hidden:
        raise Refused(f"{row.model} has hidden size {hidden}, the row says {row.hidden}")
    return {"preset": preset.name}


def _from_columns(row: Row) -> dict[str, Any]:
    missing = [name for name in ("layers", "hidden", "heads", "vocab", "seq_len") if not getattr(row, name)]
    if missing:
        raise Refused(f"the row does not say {', '.join(missing)}")
    gated, family = bool(row.gated_mlp), (row.model or "").lower()
    bias = not gated and not family.startswith(WITHOUT_BIAS)
    head_dim = row.head_dim or known(row.hidden) // known(row.heads)
    if not row.head_dim and known(row.hidden) % known(row.heads):
        raise Refused(f"hidden {row.hidden} is no multiple of {row.heads} heads and head_dim is blank")
    attention = {
        "kind": "softmax",
        "heads": row.heads,
        "kv_heads": row.kv_heads or row.heads,
        "head_dim": head_dim,
        "bias": bias,
    }
    if row.n_experts:
        blocks = _expert_blocks(row, attention)
    else:
        if not row.ffn:
            raise Refused("the row does not say ffn")
        blocks = [{"repeat": row.layers, "attention": attention, "mlp": _dense(row, gated, bias)}]
    rotary = gated or family.startswith("nemotron")
    document: dict[str, Any] = {
        "hidden_size": row.hidden,
        "vocab_size": row.vocab,
        "tied_embeddings": not rotary,
        "norm": "rms" if gated else "layer",
        "blocks": blocks,
    }
    if not rotary:
        document["learned_positions"] = row.seq_len
    return document


def _dense(row: Row, gated: bool, bias: bool) -> dict[str, Any]:
    return {"kind": "dense", "hidden_size": row.ffn, "gated": gated, "bias": bias}


def _expert_blocks(row: Row, attention: dict[str, Any]) -> list[dict[str, Any]]:
    if not (row.topk and row.moe_ffn):
        raise Refused("an expert model without topk or moe_ffn")
    assert row.layers is not None
    dense_layers = row.n_dense_layers or 0
    experts: dict[str, Any] = {
        "kind": "moe",
        "hidden_size": row.moe_ffn,
        "gated": bool(row.gated_mlp),
        "experts": row.n_experts,
        "top_k": row.topk,
        "shared_hidden_size": row.shared_ffn or 0,
    }
    blocks = [{"repeat": row.layers - dense_layers, "attention": attention, "mlp": experts}]
    if dense_layers:
        blocks.insert(0, {"repeat": dense_layers, "attention": attention, "mlp": _dense(row, bool(row.gated_mlp), False)})
    return blocks
