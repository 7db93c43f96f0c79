"""Number of parameters of a model, by the usual formulas (h hidden, a heads, g key/value heads, d head width, f width).

Sources: cost_models 1.1; the gated delta rule and Mamba-2 by the layer definitions of Qwen3-Next and Nemotron-H.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from solver.problem.model import Attention, Block, LinearAttention, MlaAttention, Mlp, MoeMlp, SoftmaxAttention, Transformer

#: Scalars a linear attention layer keeps per head: decay rate, step bias, skip (Mamba-2; the delta rule has the first two).
_SCALARS_PER_HEAD = 3


@dataclass(frozen=True)
class Parts:
    """Parameters by what they belong to. `mtp` is no part of a total, as publishers count; `vision` is."""

    embedding: int = 0
    attention: int = 0
    dense_mlp: int = 0
    experts: int = 0
    head: int = 0
    norms: int = 0
    mtp: int = 0
    vision: int = 0

    def __add__(self, other: Parts) -> Parts:
        return Parts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def times(self, factor: int) -> Parts:
        """Every part as many times."""
        return Parts(**{f.name: factor * getattr(self, f.name) for f in fields(self)})

    @property
    def total(self) -> int:
        """All parts without the multi-token-prediction layers."""
        return self.embedding + self.attention + self.dense_mlp + self.experts + self.head + self.norms + self.vision


@dataclass(frozen=True)
class ParameterCount:
    """`active`: those that work on one text token, the embedding table counted as a whole, vision and prediction layers not."""

    total: int
    active: int
    parts: Parts


def count_parameters(language: Transformer, encoders: Iterable[Transformer] = ()) -> ParameterCount:
    """The count of a language model and of the encoders that feed it."""
    parts = transformer_parts(language) + Parts(vision=sum(transformer_parts(encoder).total for encoder in encoders))
    idle = sum(block.repeat * _idle_parameters(block, language) for block in language.blocks)
    return ParameterCount(total=parts.total, active=parts.total - parts.vision - idle, parts=parts)


def count_model_parameters(model: Mapping[str, Any]) -> ParameterCount:
    """The count of a model document of one transformer, or of modules of which the last is the language model."""
    if "transformer" in model:
        return count_parameters(Transformer.model_validate(model["transformer"]))
    *encoders, language = [Transformer.model_validate(module["transformer"]) for module in model["modules"]]
    return count_parameters(language, encoders)


def parameter_count(transformer: Transformer, *, with_mtp: bool = True) -> int:
    """All parameters: embeddings (twice if untied), positions, blocks with their norms, final norm, prediction layers."""
    parts = transformer_parts(transformer)
    return parts.total + (parts.mtp if with_mtp else 0)


def transformer_parts(transformer: Transformer) -> Parts:
    """The parameters of one stack; the input and output projections of an encoder are its embedding and its head."""
    h, vocabulary = transformer.hidden_size, transformer.vocab_size
    head = 0 if transformer.tied_embeddings else vocabulary * h
    ends = Parts(
        embedding=(vocabulary + transformer.embedding_features + (transformer.learned_positions or 0)) * h,
        head=head + (vocabulary if transformer.head_bias else 0) + _output_parameters(transformer),
        norms=norm_parameters(transformer, h),
        mtp=transformer.mtp_layers * mtp_parameters(transformer),
    )
    return sum((_block_parts(block, transformer).times(block.repeat) for block in transformer.blocks), ends)


def _output_parameters(transformer: Transformer) -> int:
    """Projectors of an encoder: merged tokens -> (hidden ->) features, with biases."""
    merged, middle = transformer.hidden_size * transformer.output_merge, transformer.output_hidden_size
    features = transformer.output_features
    if not features:
        return 0
    first = (merged + 1) * middle
    return transformer.output_count * (first + ((middle or merged) + 1) * features)


def norm_parameters(transformer: Transformer, width: int) -> int:
    """Scale, and shift for a layer norm."""
    return width * (2 if transformer.norm == "layer" else 1)


def block_parameters(block: Block, transformer: Transformer) -> int:
    """One layer of a block: attention, feed-forward, norms."""
    return _block_parts(block, transformer).total


def _block_parts(block: Block, transformer: Transformer) -> Parts:
    attention = 0 if block.attention is None else attention_parameters(block.attention, transformer)
    mlp = 0 if block.mlp is None else mlp_parameters(block.mlp, transformer.hidden_size)
    routed = isinstance(block.mlp, MoeMlp)
    norms = block.norm_count * norm_parameters(transformer, transformer.hidden_size)
    return Parts(attention=attention, dense_mlp=0 if routed else mlp, experts=mlp if routed else 0, norms=norms)


def attention_parameters(attention: Attention, transformer: Transformer) -> int:
    """Projections with their biases and what else belongs to one attention."""
    if isinstance(attention, MlaAttention):
        return _latent_parameters(attention, transformer)
    if isinstance(attention, LinearAttention):
        return _linear_parameters(attention, transformer)
    return _softmax_parameters(attention, transformer)


def _softmax_parameters(attention: SoftmaxAttention, transformer: Transformer) -> int:
    """h a d (twice with an output gate) + 2 h g d + a d h, biases, norms of queries and keys, one sink a head."""
    h, a, d = transformer.hidden_size, attention.heads, attention.head_dim or transformer.hidden_size // attention.heads
    g, queries = attention.kv_heads or a, 2 * a if attention.output_gate else a
    bias = ((queries + 2 * g) * d if attention.bias else 0) + (h if attention.has_output_bias else 0)
    qk_norm = 2 * norm_parameters(transformer, d) if attention.qk_norm else 0
    return h * (queries + 2 * g) * d + a * d * h + bias + qk_norm + (a if attention.sinks else 0)


def _latent_parameters(attention: MlaAttention, transformer: Transformer) -> int:
    """q: h a (dn + dr), or rq (h + a (dn + dr)) + norm; kv: rkv (h + a (dn + dv)) + norm + h dr; o: a dv h."""
    h, a = transformer.hidden_size, attention.heads
    width, rank_q, rank_kv = (
        attention.qk_nope_head_dim + attention.qk_rope_head_dim,
        attention.q_lora_rank,
        attention.kv_lora_rank,
    )
    query = h * a * width if rank_q is None else rank_q * (h + a * width) + norm_parameters(transformer, rank_q)
    up = rank_kv * (h + a * (attention.qk_nope_head_dim + attention.v_head_dim)) + norm_parameters(transformer, rank_kv)
    return query + up + h * attention.qk_rope_head_dim + a * attention.v_head_dim * h


def _linear_parameters(attention: LinearAttention, transformer: Transformer) -> int:
    """Input projections (queries, keys, values, gate, scalars), convolution, scalars per head, output norm and projection."""
    h, heads = transformer.hidden_size, attention.heads
    value_head = attention.head_dim or h // heads
    keys = 2 * (attention.kv_heads or heads) * (attention.key_head_dim or value_head)
    values = heads * value_head
    projected = keys + values * (2 if attention.gate else 1) + heads * attention.decays_per_head
    bias = projected + h if attention.bias else 0
    small = value_head + (_SCALARS_PER_HEAD * heads if attention.decays_per_head else 0)
    return h * projected + bias + attention.conv_kernel * (keys + values) + small + values * h


def mlp_parameters(mlp: Mlp, h: int) -> int:
    """Dense: 3 h f gated, 2 h f else. Routed: the same for every expert and the shared ones, router h E, shared gate h."""
    if isinstance(mlp, MoeMlp):
        router = (h + mlp.router_bias) * mlp.experts + (h if mlp.shared_gate else 0)
        return mlp.experts * expert_parameters(mlp, h) + (3 if mlp.gated else 2) * h * mlp.shared_hidden_size + router
    return _feed_forward(h, mlp.hidden_size, gated=mlp.gated, bias=mlp.bias)


def expert_parameters(mlp: MoeMlp, h: int) -> int:
    """One routed expert."""
    return _feed_forward(h, mlp.hidden_size, gated=mlp.gated, bias=mlp.bias)


def _feed_forward(h: int, width: int, *, gated: bool, bias: bool) -> int:
    projections = 3 if gated else 2
    return projections * h * width + ((projections - 1) * width + h if bias else 0)


def _idle_parameters(block: Block, transformer: Transformer) -> int:
    """Routed experts of a layer that a token does not visit."""
    if not isinstance(block.mlp, MoeMlp):
        return 0
    return (block.mlp.experts - block.mlp.top_k) * expert_parameters(block.mlp, transformer.hidden_size)


def mtp_parameters(transformer: Transformer) -> int:
    """A multi-token-prediction layer: one of the last kind, a 2 h x h projection, three norms; embedding and head are shared."""
    h = transformer.hidden_size
    return block_parameters(transformer.blocks[-1], transformer) + 2 * h * h + 3 * norm_parameters(transformer, h)
