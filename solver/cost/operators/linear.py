"""Linear attention in chunks (gated delta rule, Mamba-2): time linear in the length, so part of the base.

Per token and head with key width dk, value width dv and chunk C (Yang et al., arXiv 2412.06464, section 3; Dao and Gu, arXiv
2405.21060, section 6): scores and their product with the values inside the chunk 2 C (dk + dv), reading and updating the state
4 dk dv. The delta rule (two scalars a head) also solves the chunk's triangular system: 2 C (2 dk + dv) + 2 C^2 / 3 + 2 dk dv.
"""

from __future__ import annotations

import numpy as np

from solver.cost.operators.context import LayerCosts, Product
from solver.problem import LinearAttention

BACKWARD_FLOPS = 2.5
CONVOLUTION_BYTES = 4.0
GATE_BYTES = 6.0
STATE_PASSES = 3.0
"""times a chunk's state crosses memory: written by its update, read by the scan, read by the output"""


def products(costs: LayerCosts, attention: LinearAttention) -> list[Product]:
    """Input projections (keys, queries, values, gate, scalars) in one product, and the output projection."""
    tp = costs.points.tp
    values = attention.heads * attention.head_dim / tp
    keys = 2.0 * _key_heads(costs, attention) * attention.key_head_dim
    scalars = attention.decays_per_head * attention.heads / tp
    width = keys + values * (2.0 if attention.gate else 1.0) + scalars
    return [costs.product(costs.tokens, width, costs.hidden), costs.product(costs.tokens, costs.hidden, values)]


def stream_bytes(costs: LayerCosts, attention: LinearAttention) -> np.ndarray:
    """Convolution, gate and output norm of the forward pass."""
    values = attention.heads * attention.head_dim / costs.points.tp
    keys = 2.0 * _key_heads(costs, attention) * attention.key_head_dim
    per_token = CONVOLUTION_BYTES * (keys + values) * (1.0 if attention.conv_kernel else 0.0)
    per_token = per_token + values * (CONVOLUTION_BYTES + (GATE_BYTES if attention.gate else 0.0))
    return np.asarray(costs.tokens * per_token)


def scan_s(costs: LayerCosts, attention: LinearAttention, *, forward: bool) -> np.ndarray:
    """The chunked recurrence: its products at the rate of small batched ones, or its bytes if they take longer."""
    heads = attention.heads / costs.points.tp
    key, value, chunk = float(attention.key_head_dim), float(attention.head_dim), float(attention.chunk_tokens)
    per_token = 2.0 * chunk * (key + value) + 4.0 * key * value
    if attention.decays_per_head > 1:
        per_token += 2.0 * chunk * (2.0 * key + value) + 2.0 / 3.0 * chunk**2 + 2.0 * key * value
    ratio = 1.0 if forward else BACKWARD_FLOPS
    flops = costs.tokens * heads * per_token * ratio
    moved = costs.tokens * heads * costs.element * ratio * (2.0 * (key + value) + STATE_PASSES * key * value / chunk)
    rate = costs.device.wide_flops_per_s * costs.shared.scan_product_fraction
    return np.asarray(np.maximum(flops / rate, costs.device.stream_s(moved)) + costs.device.kernel_overhead_s)


def context_s(costs: LayerCosts, attention: LinearAttention) -> np.ndarray:
    """Context-parallel ranks gather each other's states: [heads, dk, dv] a rank and sequence."""
    points = costs.points
    latency, slope = costs.network.gather(points.cp, points.tp)
    state = points.mbs * attention.heads / points.tp * attention.key_head_dim * attention.head_dim * 4.0
    return np.asarray(np.where(points.cp > 1, latency + slope * points.cp * state, 0.0))


def _key_heads(costs: LayerCosts, attention: LinearAttention) -> np.ndarray:
    return np.asarray(np.maximum(attention.kv_heads / costs.points.tp, 1.0))
