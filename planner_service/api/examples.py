"""The example bodies in the OpenAPI document; a test sends every one of them."""

from __future__ import annotations

from typing import Any

PROBLEM: dict[str, Any] = {
    "model": {"preset": "llama-3.1-8b"},
    "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
    "cluster": {"groups": [{"name": "a100", "device": "A100-SXM4-80", "nodes": 1}]},
    "framework": "megatron-core",
}
LAYOUT: dict[str, Any] = {"tp": 2, "pp": 2, "dp": 2, "mbs": 1, "recompute": "selective"}
OTHER_LAYOUT: dict[str, Any] = {"tp": 4, "pp": 1, "dp": 2, "mbs": 1, "recompute": "selective"}
EVALUATION: dict[str, Any] = {"problem": PROBLEM, "layout": LAYOUT}
EDIT: dict[str, Any] = {"label": "nightly", "note": "before the new racks", "tags": ["llama", "a100"]}
HF_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
CALIBRATION: dict[str, Any] = {
    "name": "our-a100",
    "device": "A100-SXM4-80",
    "ranks": 16,
    "nodes": 2,
    "collectives": ["  8589934592    2147483648     float     sum      -1    90000   95.44  178.96       0"],
}
COMPARISON: dict[str, Any] = {
    "plans": [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
    ]
}
