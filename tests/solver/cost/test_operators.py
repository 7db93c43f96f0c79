"""Layer times: what changes them, and by how much at least."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from solver.cost import columns as col
from solver.cost.compute import DeviceCosts
from solver.cost.operators import Points
from solver.cost.shared import shared_constants
from solver.cost.table import CostModel, cost_model
from solver.problem import normalise, parse_problem
from tests.solver.problem.documents import small

ATTENTION = {"kind": "softmax", "heads": 16, "kv_heads": 16, "head_dim": 128}
MLP = {"kind": "dense", "hidden_size": 8192}
EXPERTS = {"kind": "moe", "hidden_size": 1024, "experts": 32, "top_k": 4}


def model_of(attention: dict[str, Any] | None = None, mlp: dict[str, Any] | None = None, **changes: Any) -> CostModel:
    """A model of equal layers of 2,048 hidden on eight H100."""
    block = {"repeat": 4, "attention": attention or ATTENTION, "mlp": mlp or MLP}
    transformer = {"hidden_size": 2048, "vocab_size": 32000, "blocks": [block]}
    base = {"model": {"transformer": transformer}, "cluster.groups.0.device": "H100-SXM5-80"}
    return cost_model(normalise(parse_problem(small(**{**base, **changes}))))


def points(**sizes: int) -> Points:
    """One point; sizes not named are 1."""
    named = {name: np.array([sizes.get(name, 1)]) for name in ("tp", "cp", "ep", "etp", "mbs")}
    return Points(
        **named, cp_kind=np.array([0]), sp=np.array([int(sizes.get("tp", 1) > 1)]), row_tokens=sizes.get("tokens", 4096)
    )


def layer_s(model: CostModel, **sizes: int) -> tuple[float, float]:
    """Forward and backward seconds of a layer at the model's own work."""
    kinds, _ = model.point_tables(0, points(tokens=model.scenarios.row_tokens, **sizes))
    work = model.scenarios.least_work * sizes.get("mbs", 1)
    entry = kinds[0, 0]
    forward = entry[col.FORWARD_BASE] + entry[col.FORWARD_SLOPE] * work
    return float(forward), float(entry[col.BACKWARD_BASE] + entry[col.BACKWARD_SLOPE] * work)


def test_backward_is_longer_than_forward() -> None:
    """About twice the products."""
    forward, backward = layer_s(model_of(), mbs=4)
    assert 1.5 * forward < backward < 3.0 * forward


def test_a_window_costs_less_and_a_wide_one_the_same() -> None:
    """Attention of 512 tokens in rows of 4,096; one of 4,096 is no window."""
    whole = layer_s(model_of(), mbs=4)[0]
    window = layer_s(model_of({**ATTENTION, "window_tokens": 512}), mbs=4)[0]
    wide = layer_s(model_of({**ATTENTION, "window_tokens": 4096}), mbs=4)[0]
    assert window < 0.97 * whole
    assert wide == pytest.approx(whole, rel=1e-3)


def test_chunks_of_attention() -> None:
    """Chunks of 1,024 do about the work of windows of 512."""
    chunk = layer_s(model_of({**ATTENTION, "chunk_tokens": 1024}), mbs=4)[0]
    window = layer_s(model_of({**ATTENTION, "window_tokens": 512}), mbs=4)[0]
    assert chunk == pytest.approx(window, rel=0.05)


def test_linear_attention_is_linear_in_the_length() -> None:
    """Four times the row, four times the time; softmax grows faster."""
    linear = {"kind": "linear", "heads": 16, "kv_heads": 16, "head_dim": 128, "key_head_dim": 128, "decays_per_head": 2}
    lengths = "workload.sequence_lengths"

    def growth(attention: dict[str, Any]) -> float:
        long = layer_s(model_of(attention, **{lengths: {"constant": 32768}}), mbs=8)[0]
        return long / layer_s(model_of(attention, **{lengths: {"constant": 8192}}), mbs=8)[0]

    assert growth(linear) == pytest.approx(4.0, rel=0.03)
    assert growth(ATTENTION) > 4.6


def test_an_output_gate_widens_the_query_projection() -> None:
    """More products and more bytes."""
    plain, gated = (layer_s(model_of({**ATTENTION, "output_gate": gate}), mbs=4)[0] for gate in (False, True))
    assert 1.02 * plain < gated < 1.3 * plain


def test_eight_bits_are_faster_where_products_are_large() -> None:
    """Products run faster, casts cost bytes, attention stays as it is."""
    wide, narrow = (layer_s(model_of(**{"workload.precision": precision}), mbs=8)[1] for precision in ("bf16", "fp8"))
    assert 0.55 * wide < narrow < 0.95 * wide


def test_experts_exchange_tokens_and_parallel_ranks_hold_fewer() -> None:
    """The exchange appears with expert parallelism only."""
    kinds, _ = model_of(mlp=EXPERTS).point_tables(0, points(ep=8, mbs=4))
    alone, _ = model_of(mlp=EXPERTS).point_tables(0, points(mbs=4))
    assert kinds[0, 0, col.EXPERT_FORWARD] > 0.0
    assert alone[0, 0, col.EXPERT_FORWARD] == 0.0


def test_launch_floor_rules_small_layers() -> None:
    """A tiny micro-batch takes the launch time, and captured graphs remove it."""
    small_layer = model_of(**{"workload.sequence_lengths": {"constant": 128}})
    floor = small_layer.problem.workload.software.assumptions["launch_floor_s_per_layer"]
    graphs = model_of(**{"workload.sequence_lengths": {"constant": 128}, "workload.kernels": {"cuda_graphs": True}})
    assert layer_s(small_layer)[0] >= floor
    assert layer_s(graphs)[0] < layer_s(small_layer)[0]


def test_misaligned_heads_are_slow_when_scores_are_materialised() -> None:
    """Head size 108 against 112 (published: attention eight times slower)."""
    unfused = {"workload.kernels": {"attention": "unfused"}}
    slow, fast = (layer_s(model_of({**ATTENTION, "head_dim": width}, **unfused), mbs=4)[0] for width in (108, 112))
    assert slow > 1.2 * fast


def test_flash_attention_versions() -> None:
    """Each version is no slower than the one before."""
    device = model_of().problem.cluster.groups[0].device
    software = dict(model_of().problem.workload.software.assumptions)
    rates = []
    for version in (1.0, 2.0, 3.0):
        costs = DeviceCosts(device, "bf16", {**software, "flash_attention_version": version}, shared_constants())
        rates.append(costs.attention_forward_flops_per_s)
    assert rates == sorted(rates)
    assert rates[0] < rates[2]


def test_products_prefer_full_waves_and_deep_sums() -> None:
    """A shallow or small product runs at a lower rate; time never falls as a size grows by whole tiles."""
    costs = DeviceCosts(
        model_of().problem.cluster.groups[0].device,
        "bf16",
        dict(model_of().problem.workload.software.assumptions),
        shared_constants(),
    )
    m = np.array([4096.0, 4096.0, 128.0])
    n = np.array([4096.0, 4096.0, 4096.0])
    k = np.array([4096.0, 128.0, 4096.0])
    rate = 2.0 * m * n * k / costs.gemm_s(m, n, k)
    assert rate[0] > 1.3 * rate[1]
    assert rate[0] > 1.3 * rate[2]
    rows = np.arange(256.0, 16384.0, 256.0)
    seconds = costs.gemm_s(rows, np.full_like(rows, 4096.0), np.full_like(rows, 4096.0))
    assert np.all(np.diff(seconds) > -1e-9 * seconds[1:] - 2e-5)


def test_trial_constants_change_the_tables_only() -> None:
    """`cost_model(problem, shared)` prices with other shared constants."""
    problem = model_of().problem
    slower = dataclasses.replace(shared_constants(), backward_stream_ratio=5.0)
    shipped, trial = cost_model(problem), cost_model(problem, slower)
    assert layer_s(trial, mbs=4)[1] > layer_s(shipped, mbs=4)[1]
    assert layer_s(trial, mbs=4)[0] == layer_s(shipped, mbs=4)[0]
