"""Layer kinds of a transformer, in the order of its layers.

A model is a sequence of layers of few *kinds* (dense, mixture of experts, multi-token prediction). Costs are tabulated per kind;
a stage's cost follows from how many layers of each kind it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.errors import FieldError, InvalidProblem
from solver.problem import Attention, Block, LinearAttention, Mlp, Transformer
from solver.problem.model import MlaAttention, SoftmaxAttention

MOST_KINDS = 64


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One kind of layer; `prediction_head` marks a multi-token-prediction layer, which also projects and computes logits."""

    attention: Attention | None
    mlp: Mlp | None
    prediction_head: bool = False
    norms: int = 2
    parallel: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """`kind_of_layer[layers]` indexes `kinds`; the `mtp_layers` extra layers sit on the last stage and are of the last kind."""

    model: Transformer
    kinds: tuple[LayerKind, ...]
    kind_of_layer: np.ndarray
    kind_prefix: np.ndarray
    """int[kinds, layers + 1]: layers of each kind before a position."""

    @property
    def layers(self) -> int:
        return int(self.kind_of_layer.shape[0])

    @property
    def mtp_layers(self) -> int:
        return self.model.mtp_layers

    @property
    def mtp_kind(self) -> int:
        """Index of the multi-token-prediction kind, -1 without one."""
        return len(self.kinds) - 1 if self.model.mtp_layers else -1


def architecture(model: Transformer) -> Architecture:
    """Kinds and their order for a transformer."""
    kinds: list[LayerKind] = []
    order: list[int] = []
    for block in model.blocks:
        kind = _kind(block)
        if kind not in kinds:
            kinds.append(kind)
        order.extend([kinds.index(kind)] * block.repeat)
    if model.mtp_layers:
        last = model.blocks[-1]
        kinds.append(_kind(last, prediction_head=True))
    if len(kinds) > MOST_KINDS:
        message = f"at most {MOST_KINDS} distinct kinds of layer are supported, these blocks have {len(kinds)}"
        raise InvalidProblem((FieldError("/model/transformer/blocks", "too_large", message, (MOST_KINDS,)),))
    kind_of_layer = np.array(order, dtype=np.int64)
    prefix = np.zeros((len(kinds), len(order) + 1), dtype=np.int64)
    for index in range(len(kinds)):
        prefix[index, 1:] = np.cumsum(kind_of_layer == index)
    return Architecture(model=model, kinds=tuple(kinds), kind_of_layer=kind_of_layer, kind_prefix=prefix)


def _kind(block: Block, *, prediction_head: bool = False) -> LayerKind:
    return LayerKind(block.attention, block.mlp, prediction_head, block.norm_count, block.parallel)


def padded_vocabulary(vocab_size: int, tp: np.ndarray, multiple: float) -> np.ndarray:
    """Vocabulary rows after padding to a multiple of `multiple` x tp (Megatron tokenizer `_vocab_size_with_padding`)."""
    step = int(multiple) * tp
    return np.asarray(-(-vocab_size // step) * step)


def layer_forward_flops_per_token(kind: LayerKind, hidden_size: int, sequence_tokens: float) -> float:
    """Model FLOPs of one layer's forward pass per token, causal attention counted half (cost_models 1.5)."""
    return _attention_flops(kind.attention, hidden_size, sequence_tokens) + _mlp_flops(kind.mlp, hidden_size)


def attention_flops_per_work(kind: LayerKind) -> float:
    """Forward FLOPs per unit of attention work (one causal score pair-sum is s^2, of which half is computed)."""
    attention = kind.attention
    if attention is None or attention.kind == "linear":
        return 0.0
    width = _score_width(attention)
    return width * attention.heads * (1.0 if attention.causal else 2.0)


def projection_flops_per_token(kind: LayerKind, hidden_size: int) -> float:
    """Forward FLOPs per token without the attention scores."""
    return layer_forward_flops_per_token(kind, hidden_size, 0.0)


def _score_width(attention: SoftmaxAttention | MlaAttention) -> float:
    """FLOPs per score and head are 2 x (query-key width + value width), half of it under a causal mask."""
    if attention.kind == "mla":
        return float(attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)
    return 2.0 * attention.head_dim


def _attention_flops(attention: Attention | None, hidden: int, sequence_tokens: float) -> float:
    if attention is None:
        return 0.0
    heads = attention.heads
    if attention.kind == "linear":
        return _linear_flops(attention, hidden)
    if attention.kind == "mla":
        query_width = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
        rank = attention.q_lora_rank
        query = hidden * query_width if not rank else rank * (hidden + query_width)
        latent = attention.kv_lora_rank
        key_value = hidden * (latent + attention.qk_rope_head_dim)
        key_value += latent * heads * (attention.qk_nope_head_dim + attention.v_head_dim)
        weights = query + key_value + heads * attention.v_head_dim * hidden
    else:
        queries = 2 * heads if attention.output_gate else heads
        weights = hidden * attention.head_dim * (queries + heads + 2 * attention.kv_heads)
    scores = _score_width(attention) * heads * (1.0 if attention.causal else 2.0) * sequence_tokens
    return 2.0 * weights + scores


def _linear_flops(attention: LinearAttention, hidden: int) -> float:
    """Projections, and reading and updating a state of key width x value width per head (the recurrence, whatever its chunk)."""
    keys, values = 2 * attention.kv_heads * attention.key_head_dim, attention.heads * attention.head_dim
    inputs = keys + values * (2 if attention.gate else 1) + attention.heads * attention.decays_per_head
    state = 4.0 * attention.key_head_dim * values
    return 2.0 * hidden * (inputs + values) + state


def _mlp_flops(mlp: Mlp | None, hidden: int) -> float:
    if mlp is None:
        return 0.0
    matrices = 3 if mlp.gated else 2
    if mlp.kind == "dense":
        return 2.0 * matrices * hidden * mlp.hidden_size
    routed = matrices * hidden * mlp.hidden_size * mlp.top_k
    return 2.0 * (routed + matrices * hidden * (mlp.shared_hidden_size or 0) + hidden * mlp.experts)


def head_forward_flops_per_token(model: Transformer) -> float:
    """FLOPs of the logits per token (cost_models 1.5)."""
    return 2.0 * model.hidden_size * model.vocab_size * (1 + model.mtp_layers)
