"""Routed experts: router, permutations, grouped products, the two token exchanges; shared experts as a dense layer.

Rates of grouped products and of the exchanges come from microbenchmarks (device files), not from training runs.
"""

from __future__ import annotations

import numpy as np

from solver.cost.operators.context import LayerCosts, Product
from solver.cost.operators.dense import activation_bytes, pair
from solver.problem import MoeMlp

PERMUTE_BYTES = 8.0
"""bytes a routed row's hidden element moves through fused permutation and its inverse with the weighted sum: read and write"""
ROUTED_ACTIVATION_BYTES = 6.0


def products(costs: LayerCosts, mlp: MoeMlp) -> list[Product]:
    """Router (never narrow), shared experts, and the grouped products of the rank's experts."""
    points = costs.points
    found = [costs.product(costs.local_tokens, mlp.experts, costs.hidden, narrow=False)]
    if mlp.shared_hidden_size:
        found += pair(costs, mlp.shared_hidden_size, gated=mlp.gated)
    batch = mlp.experts / points.ep
    rows = costs.routed_rows(mlp) * points.etp / batch
    width = mlp.hidden_size / points.etp
    wide = 2.0 if mlp.gated else 1.0
    found.append(costs.product(rows, wide * width, costs.hidden, batch, grouped=True))
    found.append(costs.product(rows, costs.hidden, width, batch, grouped=True))
    return found


def stream_bytes(costs: LayerCosts, mlp: MoeMlp) -> np.ndarray:
    """Permutations and activations of the forward pass: fused kernels at the memory's rate."""
    rows = costs.routed_rows(mlp)
    moved = rows * (PERMUTE_BYTES * costs.hidden + ROUTED_ACTIVATION_BYTES * mlp.hidden_size)
    if mlp.bias:
        moved = moved + rows * 4.0 * (mlp.hidden_size + costs.hidden)
    if mlp.shared_hidden_size:
        moved = moved + activation_bytes(costs, mlp.shared_hidden_size, gated=mlp.gated)
    return np.asarray(moved)


def exchange_s(costs: LayerCosts, mlp: MoeMlp) -> np.ndarray:
    """Dispatch and combine of one direction, and the gather and scatter around tensor-parallel experts.

    With de-duplication (DeepEP's kernels) a token crosses between nodes once for all its experts on one node.
    """
    points = costs.points
    held = costs.routed_rows(mlp) * costs.hidden * costs.element
    copies = float(mlp.top_k) if costs.settings["expert_node_dedup"] > 0.0 else 0.0
    latency, slope = costs.network.exchange(points.ep, points.etp, copies)
    gather_latency, gather_slope = costs.network.gather(points.etp, costs.one)
    return np.asarray(2.0 * (latency + slope * held) + 2.0 * (gather_latency + gather_slope * held * points.etp))
