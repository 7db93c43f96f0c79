"""Parameters and saved bytes of one layer kind on one rank, at an array of points.

Three parameter buckets (cost_models 1.1, A12): tensor-sharded, replicated, routed experts. Saved bytes per tensor follow the
traced table of the memory prototype 1.1; recompute options drop the tensors their modules rebuild.
"""

from __future__ import annotations

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import LayerKind
from solver.cost.operators import LayerCosts, selective_modules
from solver.problem import Attention, Mlp, SoftmaxAttention

EAGER_RMS_NORM_EXTRA_BYTES = 6.0
"""fp32 copies an eager RMSNorm keeps per element of its input"""
LOG_SUM_EXP_BYTES = 4.0
MASK_BYTES = 1.0
ROUTER_BYTES = 4.0


def norm_width(costs: LayerCosts) -> float:
    """Parameters of one norm per hidden element: weight, and bias for LayerNorm."""
    return 1.0 if costs.model.norm == "rms" else 2.0


def layer_parameters(costs: LayerCosts, kind: LayerKind) -> tuple[np.ndarray, np.ndarray]:
    """(tensor-sharded + replicated, routed-expert) parameters of one layer on a rank."""
    hidden = costs.hidden
    dense = attention_parameters(costs, kind.attention) + 2.0 * norm_width(costs) * hidden
    expert = np.zeros(len(costs.points))
    if kind.mlp is not None:
        mlp_dense, expert = _mlp_parameters(costs, kind.mlp)
        dense = dense + mlp_dense
    if kind.prediction_head:
        dense = dense + 2.0 * hidden * hidden / costs.points.tp + 3.0 * norm_width(costs) * hidden
    return dense, expert


def attention_parameters(costs: LayerCosts, attention: Attention | None) -> np.ndarray:
    """Projection weights, biases and head norms of one attention on a rank."""
    tp = costs.points.tp
    if attention is None:
        return np.zeros(len(costs.points))
    hidden = costs.hidden
    if attention.kind == "mla":
        query_width = attention.heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
        rank = attention.q_lora_rank
        latent = attention.kv_lora_rank
        sharded = (rank if rank else hidden) * query_width
        sharded += latent * attention.heads * (attention.qk_nope_head_dim + attention.v_head_dim)
        sharded += attention.heads * attention.v_head_dim * hidden
        replicated = hidden * (latent + attention.qk_rope_head_dim) + latent
        if rank:
            replicated += hidden * rank + rank
        return np.asarray(sharded / tp + replicated)
    assert isinstance(attention, SoftmaxAttention), "linear attention is refused before it is priced"
    query = attention.heads * attention.head_dim / tp
    keys = 2.0 * costs.kv_heads(attention) * attention.head_dim
    weights = hidden * (2.0 * query + keys)
    if attention.bias:
        weights = weights + query + keys + hidden
    if attention.qk_norm:
        weights = weights + 2.0 * attention.head_dim
    return np.asarray(weights)


def _mlp_parameters(costs: LayerCosts, mlp: Mlp) -> tuple[np.ndarray, np.ndarray]:
    points, hidden = costs.points, costs.hidden
    matrices = 3.0 if mlp.gated else 2.0
    if mlp.kind == "dense":
        dense = matrices * hidden * mlp.hidden_size / points.tp
        if mlp.bias:
            dense = dense + (2.0 if mlp.gated else 1.0) * mlp.hidden_size / points.tp + hidden
        return dense, np.zeros(len(points))
    shared = matrices * hidden * (mlp.shared_hidden_size or 0) / points.tp
    replicated = hidden * mlp.experts + (hidden if mlp.shared_gate else 0.0)
    expert = (mlp.experts / points.ep) * matrices * hidden * mlp.hidden_size / points.etp
    return shared + replicated, expert


def saved_bytes(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """float64[points, OPTIONS]: saved bytes of one layer and micro-batch under each recompute option."""
    norms = _norm_bytes(costs)
    attention, scores, latent_up = _attention_bytes(costs, kind.attention)
    mlp, droppable = _mlp_bytes(costs, kind.mlp)
    everything = norms + attention + scores + mlp
    if kind.prediction_head:
        everything = everything + 3.0 * costs.element * costs.hidden * costs.local_tokens
    out = np.empty((len(costs.points), col.OPTIONS))
    out[:, col.OPTION_NONE] = everything
    out[:, col.OPTION_CORE_ATTENTION] = everything - scores
    modules = selective_modules(costs.problem)
    dropped = np.zeros(len(costs.points))
    if "core_attn" in modules:
        dropped = dropped + scores
    if "layernorm" in modules:
        dropped = dropped + 2.0 * costs.element * costs.hidden * costs.local_tokens
    if "mla_up_proj" in modules:
        dropped = dropped + latent_up
    if kind.mlp is not None and ("mlp" if kind.mlp.kind == "dense" else "moe_act") in modules:
        dropped = dropped + droppable
    out[:, col.OPTION_SELECTIVE] = everything - dropped
    out[:, col.OPTION_FULL] = costs.element * costs.hidden * costs.local_tokens
    return out


def _norm_bytes(costs: LayerCosts) -> np.ndarray:
    per_token = 4.0 * costs.element * costs.hidden
    if costs.kernels.norm == "eager" and costs.model.norm == "rms":
        per_token += 2.0 * EAGER_RMS_NORM_EXTRA_BYTES * costs.hidden
    if costs.dropout:
        per_token += 2.0 * MASK_BYTES * costs.hidden
    return np.asarray(per_token * costs.local_tokens)


def _attention_bytes(costs: LayerCosts, attention: Attention | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(kept by every kernel, scores or log-sum-exp, rebuilt by the latent up-projection)."""
    none = np.zeros(len(costs.points))
    if attention is None:
        return none, none, none
    points, tokens, element = costs.points, costs.tokens, costs.element
    heads = attention.heads / points.tp
    if costs.kernels.attention == "unfused":
        per_score = element + ((MASK_BYTES + element) if costs.dropout else 0.0)
        scores = per_score * heads * points.row_tokens * tokens
    else:
        scores = LOG_SUM_EXP_BYTES * heads * tokens
    if attention.kind == "mla":
        query_key = attention.qk_nope_head_dim + attention.qk_rope_head_dim
        latent = (
            element * tokens * (2.0 * (attention.q_lora_rank or 0) + 2.0 * attention.kv_lora_rank + attention.qk_rope_head_dim)
        )
        expanded = element * tokens * heads * (2.0 * query_key + attention.v_head_dim)
        out = element * tokens * heads * attention.v_head_dim
        return latent + expanded + out, scores, expanded
    assert isinstance(attention, SoftmaxAttention), "linear attention is refused before it is priced"
    query = heads * attention.head_dim
    keys = costs.kv_heads(attention) * attention.head_dim
    kept = element * tokens * (2.0 * query + 2.0 * keys)
    if attention.qk_norm:
        kept = kept + element * tokens * (query + keys)
    return kept, scores, none


def _mlp_bytes(costs: LayerCosts, mlp: Mlp | None) -> tuple[np.ndarray, np.ndarray]:
    """(all saved bytes, those the `mlp` or `moe_act` module drops)."""
    if mlp is None:
        return np.zeros(len(costs.points)), np.zeros(len(costs.points))
    points, element = costs.points, costs.element
    tensors = costs.gated_tensors if mlp.gated else 2.0
    if mlp.kind == "dense":
        everything = element * tensors * mlp.hidden_size * costs.tokens / points.tp
        return everything, everything
    rows = costs.routed_rows(mlp)
    router = ROUTER_BYTES * mlp.experts * costs.local_tokens
    routed = element * rows * (points.etp * costs.hidden + tensors * mlp.hidden_size + costs.hidden)
    shared = element * tensors * (mlp.shared_hidden_size or 0) * costs.tokens / points.tp
    return router + routed + shared, element * rows * mlp.hidden_size
