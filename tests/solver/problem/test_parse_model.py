"""Transformers by their sizes: what is filled and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from solver.problem import parse_problem
from tests.solver.problem.documents import small
from tests.solver.problem.refusals import findings


def block(**changes: Any) -> dict[str, Any]:
    """A model of one block."""
    content = {
        "repeat": 2,
        "attention": {"kind": "softmax", "heads": 8},
        "mlp": {"kind": "dense", "hidden_size": 256},
        **changes,
    }
    return {"transformer": {"hidden_size": 64, "vocab_size": 100, "blocks": [content]}}


def test_explicit_transformer_is_completed() -> None:
    """Key/value heads and head width follow from the heads."""
    attention = parse_problem(small(model=block())).transformer.blocks[0].attention
    assert attention is not None
    assert attention.kind == "softmax"
    assert (attention.kv_heads, attention.head_dim, attention.causal) == (8, 8, True)


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"attention": {"kind": "softmx", "heads": 8}}, "attention", "unknown_name"),
        ({"attention": {"heads": 8}}, "attention", "missing"),
        ({"attention": {"kind": "softmax"}}, "attention/heads", "missing"),
        ({"attention": {"kind": "softmax", "head": 8}}, "attention/head", "unknown_field"),
        ({"attention": {"kind": "softmax", "heads": 8, "kv_heads": 3}}, "attention/kv_heads", "conflict"),
        ({"attention": {"kind": "softmax", "heads": 7}}, "attention/heads", "conflict"),
        ({"attention": {"kind": "softmax", "heads": 8, "window_tokens": 0}}, "attention/window_tokens", "out_of_range"),
        ({"attention": {"kind": "softmax", "heads": 8, "chunk_tokens": 0}}, "attention/chunk_tokens", "out_of_range"),
        ({"attention": {"kind": "softmax", "heads": 8, "window_tokens": 8, "chunk_tokens": 8}}, "attention", "conflict"),
        ({"attention": {"kind": "linear", "heads": 8, "key_head_dim": 0}}, "attention/key_head_dim", "out_of_range"),
        ({"norms": 9}, "norms", "out_of_range"),
        ({"parallel": True, "mlp": None}, "", "conflict"),
        ({"attention": None, "mlp": None}, "", "missing"),
        ({"mlp": {"kind": "moe", "hidden_size": 8, "experts": 4, "top_k": 8}}, "mlp", "out_of_range"),
        ({"mlp": {"kind": "moe", "hidden_size": 8, "experts": 4, "top_k": 2, "groups": 3}}, "mlp", "conflict"),
        ({"mlp": {"kind": "dense", "hidden_size": 8, "experts": 4}}, "mlp/experts", "unknown_field"),
        ({"repeat": 0}, "repeat", "out_of_range"),
    ],
)
def test_blocks_are_checked(changes: dict[str, Any], pointer: str, code: str) -> None:
    """The union tag is no part of the pointer."""
    expected = "/model/transformer/blocks/0" + (f"/{pointer}" if pointer else "")
    found = findings(small(model=block(**changes)))
    if code == "missing" and pointer == "attention/heads":
        assert (expected, code) in found
    else:
        assert (expected, code) in found
        assert len(found) == (2 if pointer == "attention/head" else 1)


def test_model_without_vocabulary() -> None:
    """An encoder alone cannot be trained here."""
    model = block()
    del model["transformer"]["vocab_size"]
    assert findings(small(model=model)) == {("/model/transformer/vocab_size", "missing")}
