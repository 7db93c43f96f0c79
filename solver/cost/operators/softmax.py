"""Softmax and latent attention: products, the kernel per unit of attention work, streams, context-parallel traffic."""

from __future__ import annotations

import numpy as np

from solver.cost.operators.context import LayerCosts, Product
from solver.problem import MlaAttention, SoftmaxAttention

UNFUSED_SCORE_BYTES = {False: (4.0, 8.0), True: (9.0, 15.0)}
"""forward and backward bytes a score of unfused attention moves, without and with dropout (time prototype 1.2)"""
NARROW_HEAD_DIM = 64
PRODUCT_DEPTH = 64
"""tensor cores work on depths that are multiples of this"""
ALIGNED = 8
TRANSPOSE_BYTES = 4.0
"""bytes an element of queries, keys and values moves when it changes layout"""

Softmax = SoftmaxAttention | MlaAttention


def products(costs: LayerCosts, attention: Softmax) -> list[Product]:
    """Query/key/value and output projections."""
    tp = costs.points.tp
    if attention.kind == "mla":
        down = [costs.product(costs.local_tokens, attention.kv_lora_rank + attention.qk_rope_head_dim, costs.hidden)]
        if attention.q_lora_rank:
            down.append(costs.product(costs.local_tokens, attention.q_lora_rank, costs.hidden))
        out = costs.product(costs.tokens, costs.hidden, attention.heads * attention.v_head_dim / tp)
        return [*down, *latent_up(costs, attention), out]
    queries = 2.0 if attention.output_gate else 1.0
    width = attention.head_dim * (queries * attention.heads / tp + 2.0 * costs.kv_heads(attention))
    return [
        costs.product(costs.tokens, width, costs.hidden),
        costs.product(costs.tokens, costs.hidden, attention.head_dim * attention.heads / tp),
    ]


def latent_up(costs: LayerCosts, attention: MlaAttention) -> list[Product]:
    """Up-projections of latent attention."""
    tp = costs.points.tp
    query = attention.heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim) / tp
    value = attention.heads * (attention.qk_nope_head_dim + attention.v_head_dim) / tp
    depth = float(attention.q_lora_rank or costs.hidden)
    return [costs.product(costs.tokens, query, depth), costs.product(costs.tokens, value, attention.kv_lora_rank)]


def stream_bytes(costs: LayerCosts, attention: Softmax) -> np.ndarray:
    """Rotary embedding, layout changes, head norms and output gate of the forward pass."""
    tp = costs.points.tp
    width = attention.head_dim if attention.kind == "softmax" else attention.qk_nope_head_dim + attention.qk_rope_head_dim
    heads, keys = attention.heads / tp, costs.kv_heads(attention)
    rotary = 0.0 if costs.model.learned_positions else costs.settings["rotary_stream_bytes"]
    per_token = rotary * (heads + keys) * width + TRANSPOSE_BYTES * (heads + 2.0 * keys) * width
    if costs.kernels.attention == "unfused":
        per_token = per_token + TRANSPOSE_BYTES * heads * width
    if attention.kind == "softmax" and attention.qk_norm:
        per_token = per_token + TRANSPOSE_BYTES * (heads + keys) * width
    if attention.kind == "softmax" and attention.output_gate:
        per_token = per_token + 6.0 * heads * width
    return np.asarray(costs.tokens * per_token)


def slopes(costs: LayerCosts, attention: Softmax) -> tuple[np.ndarray, np.ndarray]:
    """Seconds per unit of attention work of one micro-batch, forward and backward.

    Unfused: two products over all scores at a depth padded to 64, and the bytes of scores, mask and dropout. Flash: half of the
    square under a causal mask; backward 2.5 times the FLOPs at the kernel's backward rate.
    """
    points, device, shared = costs.points, costs.device, costs.shared
    heads = attention.heads / points.tp / points.cp
    if attention.kind == "mla":
        width = float(attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)
        head_dim = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    else:
        width, head_dim = 2.0 * attention.head_dim, attention.head_dim
    if costs.kernels.attention == "unfused":
        read, write = (bytes_ * shared.score_bytes_factor for bytes_ in UNFUSED_SCORE_BYTES[costs.dropout])
        padded = PRODUCT_DEPTH * -(-head_dim // PRODUCT_DEPTH)
        fraction = shared.unfused_product_fraction * head_dim / padded
        fraction *= 1.0 if head_dim % ALIGNED == 0 else shared.misaligned_head_fraction
        product = 2.0 * width * heads / (device.wide_flops_per_s * fraction)
        return product + heads * read / device.bytes_per_s, 2.0 * product + heads * write / device.bytes_per_s
    flops = width * heads * (1.0 if attention.causal else 2.0)
    penalty = np.where(points.cp > 1, shared.context_attention_ratio, 1.0)
    penalty = penalty * (shared.narrow_head_ratio if head_dim <= NARROW_HEAD_DIM else 1.0)
    forward = flops * penalty / device.attention_forward_flops_per_s
    backward = flops * penalty * shared.attention_backward_flops_ratio / device.attention_backward_flops_per_s
    return forward, backward


def context_s(costs: LayerCosts, attention: Softmax, *, forward: bool) -> np.ndarray:
    """Keys and values around the ring (and their gradients backward), or the exchanges of heads for tokens."""
    points = costs.points
    if np.all(points.cp == 1):
        return 0.0 * costs.one
    if attention.kind == "mla":
        width = float(attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)
        keys = queries = attention.heads / points.tp * width
    else:
        keys = 2.0 * costs.kv_heads(attention) * attention.head_dim
        queries = 2.0 * attention.heads / points.tp * attention.head_dim
    rounds = points.cp - 1
    latency, slope = costs.network.point_to_point(points.tp * points.cp / 2.0)
    directions = 1.0 if forward else 2.0
    ring = rounds * latency + directions * rounds * costs.tokens * keys * costs.element * slope
    exchange_latency, exchange_slope = costs.network.all_to_all(points.cp, points.tp)
    exchange = 4.0 * exchange_latency + exchange_slope * costs.tokens * (keys + queries) * costs.element
    return np.asarray(np.where(points.cp > 1, np.where(points.cp_kind == 0, ring, exchange), 0.0))
