"""Small problems and full layouts for the certificate's tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver.layout import Layout
from solver.problem import Problem, normalise, parse_problem

LLAMA_LIKE = {"repeat": 8, "attention": {"kind": "softmax", "heads": 32, "kv_heads": 8, "head_dim": 128}}


def sample_model(**fields: Any) -> dict[str, Any]:
    """Eight Llama-3.1-8B layers with a small vocabulary."""
    block = {**LLAMA_LIKE, "mlp": {"kind": "dense", "hidden_size": 14336}}
    return {"hidden_size": 4096, "vocab_size": 32000, "blocks": [block], **fields}


def moe_model(**fields: Any) -> dict[str, Any]:
    block = {**LLAMA_LIKE, "mlp": {"kind": "moe", "hidden_size": 1024, "experts": 16, "top_k": 4, "shared_hidden_size": 2048}}
    return sample_model(blocks=[block], **fields)


def group(name: str = "h", device: str = "H100-SXM5-80", nodes: int = 2) -> dict[str, Any]:
    return {"name": name, "device": device, "nodes": nodes, "devices_per_node": 8, "price_per_device_hour": 2.0}


def sample_problem(model: Mapping[str, Any] | None = None, rows: int = 32, groups: Any = None, **fields: Any) -> Problem:
    workload = {"sequence_lengths": {"constant": 2048}, "global_batch": {"sequences": rows}} | fields.pop("workload", {})
    document = {
        "model": {"transformer": dict(model or sample_model())},
        "workload": workload,
        "cluster": {"groups": groups or [group()]} | fields.pop("cluster", {}),
    }
    return normalise(parse_problem(document | fields))


def shards(ranks: int, zero: int) -> dict[str, Any]:
    cut, whole = {"replicate": 1, "shard": ranks}, {"replicate": ranks, "shard": 1}
    return {name: cut if zero >= level else whole for name, level in (("parameters", 3), ("gradients", 2), ("optimizer", 1))}


def mesh(**sizes: int) -> list[dict[str, Any]]:
    """Axes innermost first, strides the product of the sizes before."""
    axes, stride = [], 1
    for axis, size in sizes.items():
        axes.append({"axis": axis, "size": size, "stride": stride})
        stride *= size
    return axes


def uniform_document(
    layers: int = 8,
    *,
    tp: int = 2,
    cp: int = 1,
    dp: int = 2,
    pp: int = 2,
    vpp: int = 1,
    mbs: int = 1,
    rows: int = 32,
    zero: int = 1,
    recompute: str = "none",
    ep: int = 1,
    etp: int = 1,
    mtp: bool = False,
    devices: int = 16,
    offload: float = 0.0,
) -> dict[str, Any]:
    """Equal stages on the devices of group `h`; the rest is idle."""
    size = tp * cp * dp
    width = layers // (pp * vpp)
    stages = []
    for stage in range(pp):
        part = {
            "devices": [{"group": "h", "first": stage * size, "count": size}],
            "ranks": [[stage * size, (stage + 1) * size - 1]],
            "mesh": mesh(tp=tp, cp=cp, dp=dp),
            "share": 1.0,
            "micro_batches": rows // (dp * mbs),
        }
        if ep * etp > 1:
            part["expert_mesh"] = mesh(etp=etp, ep=ep, edp=size // (etp * ep))
        first = [(chunk * pp + stage) * width for chunk in range(vpp)]
        holds = (["embedding"] if stage == 0 else []) + ((["head"] + ["mtp"] * mtp) if stage == pp - 1 else [])
        stages.append(
            {
                "chunks": [[start, start + width - 1] for start in first],
                "holds": holds,
                "parts": [part],
                "strategy": {
                    "sequence_parallel": tp > 1,
                    "shard": shards(dp * cp, zero),
                    "recompute": {"kind": recompute},
                    "offload": {"optimizer": offload, "activations": 0.0},
                },
            }
        )
    idle = [{"group": "h", "first": size * pp, "count": devices - size * pp}] if devices > size * pp else []
    return {
        "modules": [{"module": "model", "stages": stages}],
        "schedule": {"kind": "interleaved" if vpp > 1 else "1f1b"},
        "mbs": mbs,
        "vpp": vpp,
        "sequence_policy": "packed_static_cp",
        "gradient_sync": {"kind": "reduce_scatter", "overlap": True},
        "idle_devices": idle,
    }


def uniform(layers: int = 8, **degrees: Any) -> Layout:
    return Layout.model_validate(uniform_document(layers, **degrees))


def mixed_document(rows: int = 32, first_micro_batches: int = 12) -> dict[str, Any]:
    """Two stages, each half on group `h` and half on group `a`, with unequal shares."""
    document = uniform_document(dp=2, devices=8, rows=rows)
    for index, stage in enumerate(document["modules"][0]["stages"]):
        parts = []
        for number, name in enumerate(("h", "a")):
            count = first_micro_batches if number == 0 else rows // 2 - first_micro_batches
            first = 8 * index + 4 * number
            parts.append(
                {
                    **stage["parts"][0],
                    "devices": [{"group": name, "first": 4 * index, "count": 4}],
                    "ranks": [[first, first + 3]],
                    "share": 2 * count / rows,
                    "micro_batches": count,
                }
            )
        stage["parts"] = parts
        stage["strategy"]["shard"] = shards(4, 1)
    document["idle_devices"] = [{"group": name, "first": 8, "count": 8} for name in ("h", "a")]
    return document
