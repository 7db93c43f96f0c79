"""Problems of several modules for the tests: a small vision tower before a small language model."""

from __future__ import annotations

import copy
from typing import Any

from solver.problem import Problem, normalise, parse_problem

VISION: dict[str, Any] = {
    "hidden_size": 256,
    "norm": "layer",
    "embedding_features": 588,
    "learned_positions": 256,
    "output_features": 512,
    "output_hidden_size": 512,
    "output_merge": 2,
    "output_pool": 2,
    "blocks": [
        {
            "repeat": 3,
            "attention": {"kind": "softmax", "heads": 4, "head_dim": 64, "causal": False, "bias": True},
            "mlp": {"kind": "dense", "hidden_size": 1024, "gated": False, "bias": True},
        },
        {
            "attention": {"kind": "softmax", "heads": 4, "head_dim": 64, "causal": False, "bias": True, "chunk_tokens": 64},
            "mlp": {"kind": "dense", "hidden_size": 1024, "gated": False, "bias": True},
        },
    ],
}
LANGUAGE: dict[str, Any] = {
    "hidden_size": 512,
    "vocab_size": 32000,
    "blocks": [
        {
            "repeat": 8,
            "attention": {"kind": "softmax", "heads": 8, "kv_heads": 4},
            "mlp": {"kind": "dense", "hidden_size": 1536},
        }
    ],
}
PROJECTOR: dict[str, Any] = {
    "name": "projector",
    "inputs": [{"from": "vision", "tokens_ratio": 0.25}],
    "layers": {
        "operators": [
            {
                "name": "mlp",
                "parameters": 1_000_000,
                "forward_flops_per_token": 2.0e6,
                "activation_bytes_per_token": 4096,
                "output_bytes_per_token": 1024,
                "partitionable": ["parameter"],
            }
        ]
    },
}
SAMPLES = [[{"vision": 1024, "language": 100}, 300], [{"vision": 256, "language": 40}, 500], [{"language": 512}, 200]]


def document(**changes: Any) -> dict[str, Any]:
    """Vision (frozen unless `trainable`) and language on 8 devices; `projector` puts one between, `samples` says the lengths."""
    vision: dict[str, Any] = {
        "name": "vision",
        "trainable": changes.get("trainable", False),
        "transformer": copy.deepcopy(VISION),
    }
    last = {"name": "language", "inputs": [{"from": "vision", "tokens_ratio": 0.25}], "transformer": copy.deepcopy(LANGUAGE)}
    modules = [vision, last]
    if changes.get("projector"):
        del vision["transformer"]["output_features"]
        del vision["transformer"]["output_hidden_size"]
        del vision["transformer"]["output_merge"]
        del vision["transformer"]["output_pool"]
        modules = [vision, copy.deepcopy(PROJECTOR), {**last, "inputs": [{"from": "projector"}]}]
    lengths: dict[str, Any] = {"samples": SAMPLES} if changes.get("samples") else {"constant": 1024}
    return {
        "model": {"modules": modules},
        "workload": {
            "sequence_lengths": lengths,
            "max_sequence_length": 1024,
            "batching": changes.get("batching", "packed"),
            "global_batch": {"sequences": 32},
            "scenarios": {"batches": 2, "seed": 0},
        },
        "cluster": {"groups": [{"name": "a100", "device": "A100-SXM4-80", "nodes": 1, "devices_per_node": 8}]},
    }


def problem(**changes: Any) -> Problem:
    """The normalised problem of `document`."""
    return normalise(parse_problem(document(**changes)))
