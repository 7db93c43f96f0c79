"""Recompute against optimizer offload: at every memory size the search finds the mixture that brute force finds."""

from __future__ import annotations

from typing import Any

import pytest

from solver.problem import Problem, normalise, parse_problem
from solver.search import search
from solver.search.brute import brute_force

SIZES_GB = [8.0 + 1.25 * step for step in range(24)]


def problem(memory_gb: float, framework: str, pp: int) -> Problem:
    """Two devices, 4 layers of 4,096 at 16,384 tokens, a fast link to a large host."""
    attention = {"kind": "softmax", "heads": 32, "kv_heads": 8, "head_dim": 128}
    block = {"repeat": 4, "attention": attention, "mlp": {"kind": "dense", "hidden_size": 14336}}
    device = {
        "name": "device", "vendor": "one", "peak_flops_per_s": {"bf16": 3.0e14}, "memory_bytes": 1.0e9 * memory_gb,
        "memory_bytes_per_s": 2.0e12, "power_w": 400.0,
    }  # fmt: skip
    group = {
        "name": "g", "device": device, "nodes": 1, "devices_per_node": 2,
        "host": {"memory_bytes": 1.0e13, "pcie_bytes_per_s": 1.0e12},
        "fabric": [{"name": "in", "span_devices": 2, "bytes_per_s_per_device": 3.0e11, "latency_s": 3.0e-6}],
    }  # fmt: skip
    document: dict[str, Any] = {
        "model": {"transformer": {"hidden_size": 4096, "vocab_size": 32000, "blocks": [block]}},
        "workload": {"sequence_lengths": {"constant": 16384}, "global_batch": {"sequences": 8}},
        "cluster": {"groups": [group]},
        "framework": framework,
        "constraints": {"fixed": {"tp": 1, "cp": 1, "pp": pp, "mbs": 1, "vpp": 1, "schedule": "1f1b"}},
        "search": {"alternatives": 0},
    }
    return normalise(parse_problem(document))


@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("framework", ["any", "megatron-core"])
def test_recompute_and_offload_are_traded_exactly(framework: str, pp: int) -> None:
    wrong = []
    mixtures = set()
    for size in SIZES_GB:
        asked = problem(size, framework, pp)
        brute = brute_force(asked)
        plan = search(asked).result.plan
        found = plan.prediction.step_time_s if plan else None
        both = found is not None and brute.step_time_s is not None
        if found != brute.step_time_s if not both else found != pytest.approx(brute.step_time_s, rel=1e-9):
            wrong.append((size, found, brute.step_time_s))
        if brute.layout is not None:
            mixtures.add(brute.layout.stages[0].strategy.offload.optimizer)
    assert not wrong
    assert len(mixtures) > 1, "the sizes do not reach the trade-off"
