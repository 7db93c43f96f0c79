"""What a layer consists of: its weight products, the bytes of its streaming operators, and how many kernels these are."""

from __future__ import annotations

import numpy as np

from solver.cost.architecture import LayerKind
from solver.cost.operators import dense, experts, linear, norms, softmax
from solver.cost.operators.context import LayerCosts, Product


def products(costs: LayerCosts, kind: LayerKind) -> list[Product]:
    """Every weight product of a layer's forward pass."""
    found: list[Product] = []
    if kind.attention is not None:
        attention = kind.attention
        found += linear.products(costs, attention) if attention.kind == "linear" else softmax.products(costs, attention)
    if kind.mlp is not None:
        found += experts.products(costs, kind.mlp) if kind.mlp.kind == "moe" else dense.products(costs, kind.mlp)
    if kind.prediction_head:
        found.append(costs.product(costs.tokens, costs.hidden / costs.points.tp, 2.0 * costs.hidden))
    return found


def stream_bytes(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """Bytes of the forward pass's norms, residuals, activations, rotary embedding and layout changes; not those of experts."""
    moved = norms.stream_bytes(costs, kind)
    attention, mlp = kind.attention, kind.mlp
    if attention is not None:
        module = linear.stream_bytes(costs, attention) if attention.kind == "linear" else softmax.stream_bytes(costs, attention)
        moved = moved + module
    if mlp is not None and mlp.kind == "dense":
        moved = moved + dense.activation_bytes(costs, mlp.hidden_size, gated=mlp.gated)
    return np.asarray(moved)


def stream_s(costs: LayerCosts, kind: LayerKind, ratio: float) -> np.ndarray:
    """Seconds of the streaming operators, `ratio` times the forward bytes: as the software runs them, experts' fused."""
    seconds = costs.stream_factor_s(stream_bytes(costs, kind) * ratio)
    if kind.mlp is not None and kind.mlp.kind == "moe":
        seconds = seconds + costs.device.stream_s(experts.stream_bytes(costs, kind.mlp) * ratio)
    return np.asarray(seconds + stream_kernels(costs, kind) * ratio * costs.device.kernel_overhead_s)


def stream_kernels(costs: LayerCosts, kind: LayerKind) -> float:
    """Kernels of a layer's forward pass besides its weight products: each has a fixed time of its own.

    Norms and residual additions; rotary embedding and layout changes; one flash kernel, or two products, softmax and dropout;
    the activation; router, sort, two permutations and the weighted sum of experts; four of a linear recurrence.
    """
    count = float(kind.norms) + (kind.attention is not None) + (kind.mlp is not None)
    if kind.attention is not None:
        scores = 1.0 if costs.kernels.attention == "flash" else 3.0 + float(costs.dropout)
        count += 4.0 if kind.attention.kind == "linear" else 1.0 + scores + (0.0 if costs.model.learned_positions else 1.0)
    if kind.mlp is not None:
        count += 1.0 if kind.mlp.kind == "dense" else 6.0
    return count
