"""Small problems and layouts for rule tests: sizes of published models typed in, sources beside them."""

from __future__ import annotations

from typing import Any

from solver.problem import Problem, parse_problem


def softmax(heads: int, kv_heads: int, head_dim: int = 128) -> dict[str, Any]:
    return {"kind": "softmax", "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}


def dense(hidden_size: int) -> dict[str, Any]:
    return {"kind": "dense", "hidden_size": hidden_size}


def transformer(*blocks: dict[str, Any], hidden_size: int = 4096, **fields: Any) -> dict[str, Any]:
    return {"hidden_size": hidden_size, "vocab_size": 32000, "blocks": list(blocks), **fields}


def uniform_model(layers: int, heads: int = 32, kv_heads: int = 8, ffn: int = 14336, **fields: Any) -> dict[str, Any]:
    return transformer({"repeat": layers, "attention": softmax(heads, kv_heads), "mlp": dense(ffn)}, **fields)


def qwen2_5_7b() -> dict[str, Any]:
    """config.json of Qwen/Qwen2.5-7B: 28 layers, 28 heads, 4 kv heads, 18944."""
    return uniform_model(28, 28, 4, 18944, hidden_size=3584, vocab_size=152064)


def moe(layers: int, experts: int, ffn: int, top_k: int = 8, heads: int = 32, kv_heads: int = 4, **mlp: Any) -> dict[str, Any]:
    routed = {"kind": "moe", "hidden_size": ffn, "experts": experts, "top_k": top_k, **mlp}
    return transformer({"repeat": layers, "attention": softmax(heads, kv_heads), "mlp": routed}, hidden_size=2048)


def qwen3_30b_a3b() -> dict[str, Any]:
    """config.json of Qwen/Qwen3-30B-A3B: 48 layers, 32 heads, 4 kv heads, 128 experts of 768, 8 active."""
    return moe(48, 128, 768)


def problem(model: dict[str, Any], nodes: int = 1, rows: int = 64, length: int = 4096, **fields: Any) -> Problem:
    group = {"name": "g", "device": "H100-SXM5-80", "nodes": nodes, "devices_per_node": 8}
    workload = {"sequence_lengths": {"constant": length}, "global_batch": {"sequences": rows}} | fields.pop("workload", {})
    document = {"model": {"transformer": model}, "workload": workload, "cluster": {"groups": [group]}}
    return parse_problem(document | fields)
