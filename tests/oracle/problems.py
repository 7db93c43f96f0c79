"""Random small problems for the oracle: their stated spaces are small enough to price every layout by itself."""

from __future__ import annotations

import random
from typing import Any

from solver.layout import SCHEDULE_KINDS, TWO_CHUNKS
from solver.problem import Problem, normalise, parse_problem
from solver.search.brute import layouts_count, options_of

MOST_LAYOUTS = 600
GB = 1.0e9


def random_problem(seed: int, most_layouts: int = MOST_LAYOUTS) -> Problem:
    """A normalised problem with at most about `most_layouts` layouts; every fourth is closed through bounds."""
    rng = random.Random(seed)
    document = _document(rng)
    if seed % 25 == 9:
        third = _group(random.Random(f"third group {seed}"), "g2")
        third["device"]["memory_bytes"] = document["cluster"]["groups"][0]["device"]["memory_bytes"]
        document["cluster"]["groups"].append(third)
    if seed % 3 == 1:
        _let_activations_bind(random.Random(f"activations {seed}"), document)
    if seed % 4 == 0:
        document["search"]["force"] = "bounds"
    if seed % 5 == 2 and document["framework"] == "any":
        _feed_from_an_encoder(random.Random(f"encoder {seed}"), document)
    problem = normalise(parse_problem(document))
    for word, values in _narrowings(rng, document):
        count = layouts_count(options_of(problem), most_layouts)
        if count <= most_layouts:
            return problem
        document["constraints"]["allowed"][word] = values
        problem = normalise(parse_problem(document))
    return problem


def _feed_from_an_encoder(rng: random.Random, document: dict[str, Any]) -> None:
    """A vision tower before the model, whose layers may cost as much as those of the model."""
    hidden = 64 * rng.choice([4, 16])
    attention = {"kind": "softmax", "heads": rng.choice([4, 6]), "head_dim": 64, "causal": False, "bias": True}
    mlp = {"kind": "dense", "hidden_size": 4 * hidden, "gated": False}
    language = document["model"]["transformer"]
    encoder = {
        "hidden_size": hidden,
        "embedding_features": 588,
        "output_features": language["hidden_size"],
        "output_merge": 4,
        "blocks": [{"repeat": rng.randint(1, 3), "attention": attention, "mlp": mlp}],
    }
    document["model"] = {
        "modules": [
            {"name": "vision", "trainable": rng.random() < 0.5, "transformer": encoder},
            {"name": "language", "inputs": [{"from": "vision", "tokens_ratio": 0.25}], "transformer": language},
        ]
    }


def _document(rng: random.Random) -> dict[str, Any]:
    framework = rng.choice(["any", "any", "megatron-core"])
    layers = rng.randint(2, 4)
    transformer = _transformer(rng, layers, framework)
    groups = [_group(rng, "g0")]
    if rng.random() < 0.5:
        groups.append(_group(rng, "g1", groups[0]["devices_per_node"] if rng.random() < 0.5 else None))
    devices = sum(group["nodes"] * group["devices_per_node"] for group in groups)
    _size_memory(rng, transformer, groups, devices)
    document: dict[str, Any] = {
        "model": {"transformer": transformer},
        "workload": _workload(rng),
        "cluster": {"groups": groups, "memory_reserve_fraction": rng.choice([0.0, 0.06])},
        "framework": framework,
        "objective": rng.choice(["step_time", "step_time", "step_time", "cost"]),
        "constraints": {"allowed": {}, "memory": rng.choice(["safe", "safe", "fits"])},
        "search": {"alternatives": rng.randint(0, 2), "time_limit_s": None},
    }
    if len(groups) == 2 and rng.random() < 0.8:
        link = {"bytes_per_s_per_node": 10 ** rng.uniform(9, 11), "latency_s": 10 ** rng.uniform(-6, -4)}
        document["cluster"]["links"] = [{"between": ["g0", "g1"], "collectives": rng.random() < 0.7, **link}]
    if rng.random() < 0.1:
        document["constraints"]["max_devices"] = max(1, devices - 1)
    return document


def _transformer(rng: random.Random, layers: int, framework: str) -> dict[str, Any]:
    hidden = rng.choice([512, 1024, 2048, 4096])
    moe_layers = rng.choice([0, 0, layers, layers - 1])
    attention = _attention(rng, hidden)
    dense = {"kind": "dense", "hidden_size": hidden * rng.choice([2, 4]), "gated": rng.random() < 0.6}
    experts = {"kind": "moe", "hidden_size": hidden, "experts": rng.choice([2, 4]), "top_k": rng.choice([1, 2])}
    if rng.random() < 0.3:
        experts["shared_hidden_size"] = hidden
    blocks = [
        {"repeat": repeat, "attention": attention, "mlp": mlp}
        for repeat, mlp in ((layers - moe_layers, dense), (moe_layers, experts))
        if repeat
    ]
    model: dict[str, Any] = {
        "hidden_size": hidden,
        "vocab_size": rng.choice([1000, 32000, 151936]),
        "tied_embeddings": rng.random() < 0.4,
        "norm": rng.choice(["rms", "layer"]),
        "blocks": blocks,
    }
    if rng.random() < 0.15:
        model["learned_positions"] = 16384
    elif rng.random() < 0.2:
        model["mtp_layers"] = 1
    return model


def _attention(rng: random.Random, hidden: int) -> dict[str, Any]:
    heads = rng.choice([2, 4, 6])
    if rng.random() < 0.15:
        return {
            "kind": "mla", "heads": heads, "q_lora_rank": rng.choice([None, 256]), "kv_lora_rank": 128,
            "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
        }  # fmt: skip
    return {
        "kind": "softmax", "heads": heads, "kv_heads": rng.choice([1, 2, heads]) if heads % 2 == 0 else heads,
        "head_dim": rng.choice([64, 128]), "causal": rng.random() < 0.9, "bias": rng.random() < 0.2,
    }  # fmt: skip


def _group(rng: random.Random, name: str, per_node: int | None = None) -> dict[str, Any]:
    per_node = per_node or rng.choice([1, 2, 2, 4])
    return {
        "name": name,
        "device": {
            "name": f"device-{name}",
            "vendor": "one" if rng.random() < 0.8 else name,
            "peak_flops_per_s": {"bf16": 10 ** rng.uniform(13.0, 15.0)},
            "memory_bytes": 1.0,
            "memory_bytes_per_s": 10 ** rng.uniform(11.7, 12.7),
            "power_w": 400.0,
        },
        "nodes": rng.randint(1, max(1, 4 // per_node)),
        "devices_per_node": per_node,
        "host": {"memory_bytes": 10 ** rng.uniform(9.5, 12.5), "pcie_bytes_per_s": 10 ** rng.uniform(9.5, 11)},
        "fabric": [
            {"name": "in", "span_devices": per_node, "bytes_per_s_per_device": 10 ** rng.uniform(10, 11.7), "latency_s": 3e-6},
            {"name": "out", "bytes_per_s_per_device": 10 ** rng.uniform(9, 10.7), "latency_s": 1e-5, "ports_per_node": per_node},
        ],
        "price_per_device_hour": round(rng.uniform(0.5, 4.0), 2),
    }


def _size_memory(rng: random.Random, transformer: dict[str, Any], groups: list[dict[str, Any]], devices: int) -> None:
    """Around what the states need when they are cut over all devices, so that memory binds."""
    hidden = transformer["hidden_size"]
    parameters = 2.0 * transformer["vocab_size"] * hidden
    for block in transformer["blocks"]:
        mlp = block["mlp"]
        parameters += block["repeat"] * (4.0 * hidden * hidden + 3.0 * hidden * mlp["hidden_size"] * mlp.get("experts", 1))
    for group in groups:
        group["device"]["memory_bytes"] = 2.5 * GB + 18.0 * parameters / devices * 10 ** rng.uniform(-0.3, 0.9)


def _let_activations_bind(rng: random.Random, document: dict[str, Any]) -> None:
    """Fast links to a large host, long rows and memory in which recompute and offload trade against each other."""
    transformer, workload = document["model"]["transformer"], document["workload"]
    groups = document["cluster"]["groups"]
    workload["sequence_lengths"], workload["max_sequence_length"] = {"constant": 8192}, 8192
    workload.pop("scenarios", None)
    layers = sum(block["repeat"] for block in transformer["blocks"])
    for group in groups:
        states = group["device"]["memory_bytes"] - 2.5 * GB
        activations = 40.0 * 8192 * transformer["hidden_size"] * layers
        group["device"]["memory_bytes"] = 1.6 * GB + rng.uniform(0.6, 1.6) * states + rng.uniform(0.1, 0.9) * activations
        group["host"] = {"memory_bytes": 1.0e13, "pcie_bytes_per_s": 10 ** rng.uniform(11, 12.5)}


def _workload(rng: random.Random) -> dict[str, Any]:
    length = rng.choice([256, 512, 1024, 2048, 4096])
    batching = rng.choice(["packed", "packed", "padded"])
    workload: dict[str, Any] = {
        "sequence_lengths": {"constant": length},
        "batching": batching,
        "global_batch": {"sequences": rng.choice([2, 3, 4, 6, 8, 12])},
    }
    if rng.random() < 0.4:
        counts = [
            [length, rng.randint(1, 4)],
            [max(1, length // 3), rng.randint(1, 20)],
            [max(1, length // 16), rng.randint(0, 40)],
        ]
        workload["sequence_lengths"] = {"counts": [pair for pair in counts if pair[1]]}
        workload["max_sequence_length"] = length
        workload["scenarios"] = {"batches": rng.randint(2, 3), "seed": rng.randint(0, 99)}
    if rng.random() < 0.15:
        workload["global_batch"]["tolerance"] = 0.25
    if rng.random() < 0.25:
        workload["kernels"] = {"attention": "unfused", "dropout": rng.choice([0.0, 0.1])}
    if rng.random() < 0.2:
        workload["optimizer"] = {"name": "adamw", "moments": "bf16"}
    workload["software"] = {"name": "megatron-core", "assumptions": _assumptions(rng)}
    return workload


def _assumptions(rng: random.Random) -> dict[str, float]:
    """Small fixed costs, so that what scales with the layout decides."""
    return {
        "context_bytes": rng.choice([0.2e9, 1.3e9]),
        "communicator_bytes": rng.choice([0.0, 0.1e9]),
        "launch_floor_s_per_layer": rng.choice([0.0, 1e-5, 2.6e-4]),
        "kernel_overhead_s": rng.choice([0.0, 1e-6, 9.8e-6]),
        "step_overhead_s": rng.choice([0.0, 8e-3]),
    }


def _narrowings(rng: random.Random, document: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """Constraints that make the space smaller, in random order, the harshest last."""
    model = document["model"]
    planned = model["modules"][-1] if "modules" in model else model
    layers = sum(block["repeat"] for block in planned["transformer"]["blocks"])
    soft = [
        ("mbs", rng.choice([[1, 2], [1], [2, 4]])),
        ("zero", rng.sample([0, 1, 2, 3], 2) if document["framework"] == "any" else [0, 1]),
        ("offload_optimizer", rng.choice([[0.0, 1.0], [0.0, 0.5, 1.0], [0.25, 0.75]])),
        ("recompute", rng.sample(["none", "selective", "full"], 2)),
        ("cp", rng.choice([[1], [1, 2]])),
        ("vpp", rng.choice([[1], [1, 2]])),
    ]
    kinds = random.Random(f"schedules {document}").sample(SCHEDULE_KINDS, 3)
    if document["framework"] == "any":
        soft.append(("schedule", kinds))
    rng.shuffle(soft)
    hard: list[tuple[str, list[Any]]] = [
        ("mbs", [rng.choice([1, 2])]),
        ("offload_optimizer", [rng.choice([0.0, 0.0, 0.5, 1.0])]),
        ("zero", [rng.choice([0, 1, 2, 3]) if document["framework"] == "any" else 1]),
        ("cp", [1]),
        ("etp", [1]),
        ("pp", sorted(rng.sample(range(1, layers + 1), min(2, layers)))),
        ("recompute", ["full"] if rng.random() < 0.5 else ["none"]),
        ("tp", [1]),
        ("ep", [1]),
        ("vpp", [1, 2] if set(kinds) & set(TWO_CHUNKS) else [1]),
    ]
    if document["framework"] == "any":
        hard.append(("schedule", kinds[:1]))
    return soft + hard
