"""Bytes one layer keeps of one micro-batch on one rank, under each recompute option, at an array of points.

Per tensor as traced (memory prototype 1.1, "Saved bytes per token and layer"); recompute drops the tensors its modules rebuild.
`T` tokens of a rank; `local_tokens` are spread over tp under sequence parallelism.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import LayerKind
from solver.cost.operators import LayerCosts, selective_modules
from solver.problem import Attention, Mlp
from solver.problem.model import LinearAttention, MlaAttention, MoeMlp, SoftmaxAttention

LOG_SUM_EXP_BYTES = 4.0
MASK_BYTES = 1.0
ROUTER_BYTES = 4.0
INDEX_BYTES = 26.0
"""indices and weights an eager permutation keeps per routed row"""
DECAY_BYTES = 4.0
"""fp32 decay or step of a linear recurrence"""


class AttentionBytes(NamedTuple):
    """`kept` by every kernel, `scores` (or log-sum-exp) that the attention core rebuilds, `expanded` by the latent up
    projection (part of `kept`), `operators`: what saving attention and every second product keeps."""

    kept: np.ndarray
    scores: np.ndarray
    expanded: np.ndarray
    operators: np.ndarray


class MlpBytes(NamedTuple):
    """`kept`: all; `dropped` by the `mlp` or `moe_act` module; `operators` as in `AttentionBytes`."""

    kept: np.ndarray
    dropped: np.ndarray
    operators: np.ndarray


def saved_bytes(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """float64[points, OPTIONS]: saved bytes of one layer and micro-batch under each recompute option."""
    row = costs.element * costs.hidden * costs.local_tokens
    outputs = norm_tensors(kind)[1]
    attention, mlp = _attention_bytes(costs, kind.attention), _mlp_bytes(costs, kind.mlp)
    everything = _norm_bytes(costs, kind) + attention.kept + attention.scores + mlp.kept
    if kind.prediction_head:
        everything = everything + 3.0 * row
    out = np.empty((len(costs.points), col.OPTIONS))
    out[:, col.OPTION_NONE] = everything
    out[:, col.OPTION_CORE_ATTENTION] = everything - attention.scores
    out[:, col.OPTION_FULL] = row
    modules = selective_modules(costs.problem)
    if "op" in modules:
        out[:, col.OPTION_SELECTIVE] = row + attention.operators + mlp.operators
        return out
    dropped = np.zeros(len(costs.points))
    if "core_attn" in modules:
        dropped = dropped + attention.scores
    if "layernorm" in modules:
        dropped = dropped + outputs * row
    if "mla_up_proj" in modules:
        dropped = dropped + attention.expanded
    if kind.mlp is not None and ("mlp" if kind.mlp.kind == "dense" else "moe_act") in modules:
        dropped = dropped + mlp.dropped
    out[:, col.OPTION_SELECTIVE] = everything - dropped
    return out


def norm_tensors(kind: LayerKind) -> tuple[int, int]:
    """(inputs, outputs) that norms keep: both of a norm before a sublayer, whose inputs are one in a parallel block; the input
    alone of a norm behind a sublayer, whose output is only added."""
    sublayers = (kind.attention is not None) + (kind.mlp is not None)
    before = min(kind.norms, sublayers)
    behind = kind.norms - before
    shared = min(before, 1) if kind.parallel else before
    return shared + behind, before


def _norm_bytes(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    inputs, outputs = norm_tensors(kind)
    per_token = (inputs + outputs) * costs.element * costs.hidden
    if costs.kernels.norm == "eager" and costs.model.norm == "rms":
        per_token += kind.norms * costs.settings["eager_norm_kept_bytes"] * costs.hidden
    if costs.dropout:
        sublayers = (kind.attention is not None) + (kind.mlp is not None)
        per_token += sublayers * MASK_BYTES * costs.hidden
    return np.asarray(per_token * costs.local_tokens)


def _attention_bytes(costs: LayerCosts, attention: Attention | None) -> AttentionBytes:
    none = np.zeros(len(costs.points))
    if attention is None:
        return AttentionBytes(none, none, none, none)
    if attention.kind == "linear":
        return _linear_bytes(costs, attention)
    if attention.kind == "mla":
        return _latent_bytes(costs, attention)
    return _softmax_bytes(costs, attention)


def _score_bytes(costs: LayerCosts, heads: np.ndarray) -> np.ndarray:
    """Materialised scores (softmax, and with dropout its mask and result), or the log-sum-exp of a flash kernel."""
    if costs.kernels.attention == "unfused":
        per_score = costs.element + ((MASK_BYTES + costs.element) if costs.dropout else 0.0)
        return np.asarray(per_score * heads * costs.points.row_tokens * costs.tokens)
    return np.asarray(LOG_SUM_EXP_BYTES * heads * costs.tokens)


def _softmax_bytes(costs: LayerCosts, attention: SoftmaxAttention) -> AttentionBytes:
    token = costs.element * costs.tokens
    heads = attention.heads / costs.points.tp
    query = heads * attention.head_dim
    keys = costs.kv_heads(attention) * attention.head_dim
    kept = 2.0 * query + 2.0 * keys
    if attention.qk_norm:
        kept = kept + query + keys
    if attention.output_gate:
        kept = kept + 2.0 * query
    scores = _score_bytes(costs, heads)
    gate = query if attention.output_gate else 0.0
    return AttentionBytes(token * kept, scores, np.zeros(len(costs.points)), token * (2.0 * query + keys + gate) + scores)


def _latent_bytes(costs: LayerCosts, attention: MlaAttention) -> AttentionBytes:
    token = costs.element * costs.tokens
    heads = attention.heads / costs.points.tp
    query_key = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    ranks = float((attention.q_lora_rank or 0) + attention.kv_lora_rank)
    expanded = token * heads * (2.0 * query_key + attention.v_head_dim)
    out = token * heads * attention.v_head_dim
    scores = _score_bytes(costs, heads)
    rope = attention.qk_rope_head_dim
    operators = token * (ranks + rope) + token * heads * query_key + out + scores
    return AttentionBytes(token * (2.0 * ranks + rope) + expanded + out, scores, expanded, operators)


def _linear_bytes(costs: LayerCosts, attention: LinearAttention) -> AttentionBytes:
    """Queries, keys, values before and after the convolution, the gate, the recurrence's result before and after its norm,
    decays in fp32, and the triangular matrix of every chunk (read from the chunked kernels; not traced)."""
    token = costs.element * costs.tokens
    heads = attention.heads / costs.points.tp
    values = heads * attention.head_dim
    mixed = 2.0 * costs.kv_heads(attention) * attention.key_head_dim + values
    kept = mixed * (2.0 if attention.conv_kernel else 1.0) + values * (3.0 if attention.gate else 2.0)
    core = DECAY_BYTES * attention.decays_per_head * heads * costs.tokens + token * heads * attention.chunk_tokens
    return AttentionBytes(token * kept + core, np.zeros(len(costs.points)), np.zeros(len(costs.points)), token * (mixed + values))


def _mlp_bytes(costs: LayerCosts, mlp: Mlp | None) -> MlpBytes:
    points, element = costs.points, costs.element
    if mlp is None:
        none = np.zeros(len(points))
        return MlpBytes(none, none, none)
    tensors = costs.gated_tensors if mlp.gated else 2.0
    result = costs.element * costs.hidden * costs.local_tokens if mlp.gated else 0.0
    if mlp.kind == "dense":
        width = element * mlp.hidden_size * costs.tokens / points.tp
        return MlpBytes(tensors * width, tensors * width, width + result)
    return _routed_bytes(costs, mlp, tensors)


def _routed_bytes(costs: LayerCosts, mlp: MoeMlp, tensors: float) -> MlpBytes:
    """Router logits; rows sent to experts, their activations, rows to combine; shared experts."""
    points, element = costs.points, costs.element
    rows = costs.routed_rows(mlp)
    copies = costs.settings["expert_permute_copies"]
    router = (ROUTER_BYTES * mlp.experts + copies * 4.0 * costs.hidden) * costs.local_tokens
    routed = element * rows * (points.etp * costs.hidden + tensors * mlp.hidden_size + costs.hidden)
    routed = routed + copies * rows * (element * costs.hidden + INDEX_BYTES)
    shared = element * (mlp.shared_hidden_size or 0) * costs.tokens / points.tp
    combined = element * rows * costs.hidden
    return MlpBytes(router + routed + tensors * shared, element * rows * mlp.hidden_size, router + combined + shared)
