"""Loads (on a fresh machine: compiles) every kernel that a search uses, so that no request pays for it."""

from __future__ import annotations

from typing import Any

from solver.problem import parse_problem
from solver.search.answer import search

TINY_MODEL = {
    "transformer": {
        "hidden_size": 64,
        "vocab_size": 256,
        "blocks": [
            {
                "repeat": 4,
                "attention": {"kind": "softmax", "heads": 2, "head_dim": 32},
                "mlp": {"kind": "dense", "hidden_size": 128},
            }
        ],
    }
}
TINY_GROUPS = [
    {"name": "one", "device": "A100-SXM4-80", "nodes": 1, "devices_per_node": 2},
    {"name": "two", "device": "H100-SXM5-80", "nodes": 1, "devices_per_node": 2},
]


def warm() -> None:
    """Search two tiny problems: one of equal rows, one of rows of unlike work over two groups."""
    for lengths in ({"constant": 128}, {"counts": [[64, 3], [128, 1]]}):
        search(parse_problem(_tiny_problem(lengths)))


def _tiny_problem(lengths: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": TINY_MODEL,
        "workload": {"sequence_lengths": lengths, "max_sequence_length": 128, "global_batch": {"sequences": 8}},
        "cluster": {
            "groups": TINY_GROUPS,
            "links": [{"between": ["one", "two"], "bytes_per_s_per_node": 1e10, "collectives": True}],
        },
        "framework": "any",
        "search": {"alternatives": 0, "target_gap": 0.5},
    }
