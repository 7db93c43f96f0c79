"""Problem documents for the tests: one small, one with two groups."""

from __future__ import annotations

import copy
from typing import Any

SMALL: dict[str, Any] = {
    "model": {"preset": "llama-3.1-8b"},
    "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
    "cluster": {"groups": [{"name": "a100", "device": "A100-SXM4-80", "nodes": 1}]},
}

MIXED: dict[str, Any] = {
    "model": {"preset": "llama-3.1-70b"},
    "workload": {
        "sequence_lengths": {"counts": [[512, 4200], [8192, 400], [32768, 50]]},
        "max_sequence_length": 32768,
        "batching": "packed",
        "global_batch": {"sequences": 128},
    },
    "cluster": {
        "groups": [
            {"name": "h100", "device": "H100-SXM5-80", "nodes": 4, "devices_per_node": 8, "price_per_device_hour": 3.0},
            {"name": "a100", "device": "A100-SXM4-80", "nodes": 4, "devices_per_node": 8, "price_per_device_hour": 1.8},
        ],
        "links": [{"between": ["h100", "a100"], "bytes_per_s_per_node": 5.0e10, "collectives": True}],
        "currency": "USD",
    },
    "framework": "any",
    "search": {"target_gap": 0.03},
}


def small(**changes: Any) -> dict[str, Any]:
    """The small document with values put at dotted paths: small(**{"workload.batching": "padded"})."""
    return changed(SMALL, changes)


def mixed(**changes: Any) -> dict[str, Any]:
    """The mixed document with values put at dotted paths."""
    return changed(MIXED, changes)


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A deep copy with values put at dotted paths; numbers index lists, missing objects are made."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        here: Any = result
        *parents, last = path.split(".")
        for part in parents:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        here[int(last) if isinstance(here, list) else last] = value
    return result
