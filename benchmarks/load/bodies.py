"""Bodies as large as the service takes them, each hard on another part of it."""

from __future__ import annotations

import json
from typing import Any

from planner_service.api.examples import HF_CONFIG, PROBLEM

SIZE_BYTES = 8 * 2**20 - 1024


def large_bodies(size_bytes: int = SIZE_BYTES) -> dict[str, tuple[str, bytes]]:
    """Path and body by what is large in it."""
    pair, field = len("[12345,1],"), len('"field1234567":0,')
    lengths = [[1 + index % 60_000, 1] for index in range(size_bytes // pair)]
    return {
        "one string": ("/v1/searches", filled({**PROBLEM, "label": ""}, size_bytes)),
        "unknown fields": ("/v1/searches", encoded({f"field{index:07d}": 0 for index in range(size_bytes // field)})),
        "lengths": ("/v1/searches", encoded(with_lengths(lengths))),
        "escapes": ("/v1/searches", encoded({**PROBLEM, "label": "\x01" * (size_bytes // 6 - 200)})),
        "nested lists": ("/v1/searches", encoded({"model": [[[]]] * (size_bytes // 5 - 10)})),
        "hf config": ("/v1/imports/hf-config", filled({**HF_CONFIG, "comment": ""}, size_bytes)),
        "evaluation": ("/v1/evaluations", filled({"problem": PROBLEM, "layout": {"tp": 1, "x": ""}}, size_bytes)),
        "not JSON": ("/v1/searches", b"[" * size_bytes),
    }


def with_lengths(lengths: list[list[int]]) -> dict[str, Any]:
    """The example with these sequence lengths."""
    return {**PROBLEM, "workload": {**PROBLEM["workload"], "sequence_lengths": {"counts": lengths}}}


def filled(document: dict[str, Any], size_bytes: int) -> bytes:
    """The document with its empty string made as long as it takes."""
    text = json.dumps(document)
    return text.replace('""', '"' + "x" * (size_bytes - len(text)) + '"', 1).encode()


def encoded(document: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(document, separators=(",", ":")).encode()
