"""Parameters of one layer kind on one rank, at an array of points.

Three buckets (cost_models 1.1): tensor-sharded, replicated, routed experts. What layers save is in `cost.saved`.
"""

from __future__ import annotations

import numpy as np

from solver.cost.architecture import LayerKind
from solver.cost.operators import LayerCosts
from solver.problem import Attention, Mlp
from solver.problem.model import LinearAttention, MlaAttention, SoftmaxAttention

LINEAR_SCALARS_PER_HEAD = 3.0
"""decay rate, step bias, skip of a linear recurrence, per head"""


def norm_width(costs: LayerCosts) -> float:
    """Parameters of one norm per hidden element: weight, and bias for LayerNorm."""
    return 1.0 if costs.model.norm == "rms" else 2.0


def layer_parameters(costs: LayerCosts, kind: LayerKind) -> tuple[np.ndarray, np.ndarray]:
    """(tensor-sharded + replicated, routed-expert) parameters of one layer on a rank."""
    hidden = costs.hidden
    dense = attention_parameters(costs, kind.attention) + kind.norms * norm_width(costs) * hidden
    expert = np.zeros(len(costs.points))
    if kind.mlp is not None:
        mlp_dense, expert = _mlp_parameters(costs, kind.mlp)
        dense = dense + mlp_dense
    if kind.prediction_head:
        dense = dense + 2.0 * hidden * hidden / costs.points.tp + 3.0 * norm_width(costs) * hidden
    return dense, expert


def attention_parameters(costs: LayerCosts, attention: Attention | None) -> np.ndarray:
    """Projection weights, biases and head norms of one attention on a rank."""
    if attention is None:
        return np.zeros(len(costs.points))
    if attention.kind == "mla":
        return _latent_parameters(costs, attention)
    if attention.kind == "linear":
        return _linear_parameters(costs, attention)
    return _softmax_parameters(costs, attention)


def _softmax_parameters(costs: LayerCosts, attention: SoftmaxAttention) -> np.ndarray:
    """h a d (twice with an output gate) + 2 h g d + a d h; key/value heads are copied where tp is above their number."""
    hidden, heads = costs.hidden, attention.heads / costs.points.tp
    out = heads * attention.head_dim
    query = out * (2.0 if attention.output_gate else 1.0)
    keys = 2.0 * costs.kv_heads(attention) * attention.head_dim
    weights = hidden * (query + out + keys)
    if attention.bias:
        weights = weights + query + keys
    if attention.has_output_bias:
        weights = weights + hidden
    if attention.qk_norm:
        weights = weights + 2.0 * norm_width(costs) * attention.head_dim
    if attention.sinks:
        weights = weights + heads
    return np.asarray(weights)


def _latent_parameters(costs: LayerCosts, attention: MlaAttention) -> np.ndarray:
    """Up projections and output are sharded over tp; down projections and latent norms are on every rank."""
    hidden, norm = costs.hidden, norm_width(costs)
    query_width = attention.heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    rank = attention.q_lora_rank
    latent = attention.kv_lora_rank
    sharded = (rank if rank else hidden) * query_width
    sharded += latent * attention.heads * (attention.qk_nope_head_dim + attention.v_head_dim)
    sharded += attention.heads * attention.v_head_dim * hidden
    replicated = hidden * (latent + attention.qk_rope_head_dim) + norm * latent
    if rank:
        replicated += hidden * rank + norm * rank
    return np.asarray(sharded / costs.points.tp + replicated)


def _linear_parameters(costs: LayerCosts, attention: LinearAttention) -> np.ndarray:
    """Input projections, convolution and scalars by head over tp; the norm over a head's width is on every rank."""
    hidden, heads = costs.hidden, attention.heads / costs.points.tp
    keys = 2.0 * costs.kv_heads(attention) * attention.key_head_dim
    values = heads * attention.head_dim
    projected = keys + values * (2.0 if attention.gate else 1.0) + heads * attention.decays_per_head
    weights = hidden * (projected + values) + attention.conv_kernel * (keys + values) + attention.head_dim
    if attention.decays_per_head:
        weights = weights + LINEAR_SCALARS_PER_HEAD * heads
    if attention.bias:
        weights = weights + projected + hidden
    return np.asarray(weights)


def _mlp_parameters(costs: LayerCosts, mlp: Mlp) -> tuple[np.ndarray, np.ndarray]:
    points, hidden = costs.points, costs.hidden
    matrices = 3.0 if mlp.gated else 2.0
    if mlp.kind == "dense":
        dense = matrices * hidden * mlp.hidden_size / points.tp
        if mlp.bias:
            dense = dense + (matrices - 1.0) * mlp.hidden_size / points.tp + hidden
        return dense, np.zeros(len(points))
    shared = matrices * hidden * (mlp.shared_hidden_size or 0) / points.tp
    replicated = (hidden + mlp.router_bias) * mlp.experts + (hidden if mlp.shared_gate else 0.0)
    expert = matrices * hidden * mlp.hidden_size / points.etp
    if mlp.bias:
        expert = expert + (matrices - 1.0) * mlp.hidden_size / points.etp + hidden
    return shared + replicated, mlp.experts / points.ep * expert
