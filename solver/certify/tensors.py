"""The parameters one rank holds, listed by name.

Own arithmetic of the certificate, on purpose apart from `solver.cost`, which computes the same in arrays. Sizes follow the
parameter buckets of Megatron-Core (tensor-sharded, replicated, routed experts).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from solver.problem.model import (
    Attention,
    Block,
    DenseMlp,
    LinearAttention,
    MlaAttention,
    MoeMlp,
    SoftmaxAttention,
    Transformer,
)


class Parameter(NamedTuple):
    """A weight as this rank keeps it before any data-parallel sharding: how many numbers; `routed`: one of the routed experts;
    `rows`: first dimension of a large matrix."""

    name: str
    numbers: float
    routed: bool = False
    rows: float = 0.0


@dataclass(frozen=True)
class Grid:
    """Degrees of one rank and its micro-batch: `tokens` = mbs x row / cp, `element_bytes` of weights and activations."""

    tp: int
    cp: int
    ep: int
    etp: int
    sequence_parallel: bool
    row_tokens: int
    tokens: float
    element_bytes: int
    expert_imbalance: float
    vocabulary_multiple: int

    @property
    def local_tokens(self) -> float:
        """Tokens of norms and residuals: spread over tp only under sequence parallelism."""
        return self.tokens / self.tp if self.sequence_parallel else self.tokens


def padded_vocabulary(vocab_size: int, tp: int, multiple: int) -> int:
    """Rows of the embedding table: a multiple of `multiple` x tp (Megatron's make-vocab-size-divisible-by)."""
    step = multiple * tp
    return (vocab_size + step - 1) // step * step


def table_numbers(model: Transformer, grid: Grid) -> float:
    """Numbers of this rank's slice of the embedding table or of the output projection."""
    return padded_vocabulary(model.vocab_size, grid.tp, grid.vocabulary_multiple) * model.hidden_size / grid.tp


# ---------------------------------------------------------------------------------------------------------------- parameters
def layer_parameters(model: Transformer, block: Block, grid: Grid, *, prediction_head: bool = False) -> Iterator[Parameter]:
    """Weights of one layer; a `prediction_head` (multi-token prediction) adds two norms, a projection and a final norm."""
    hidden = model.hidden_size
    yield from (norm(model, f"norm {number}") for number in range(block.norm_count))
    if block.attention is not None:
        yield from _attention_parameters(block.attention, model, grid)
    if isinstance(block.mlp, DenseMlp):
        yield from _dense_parameters(block.mlp, hidden, grid)
    elif isinstance(block.mlp, MoeMlp):
        yield from _moe_parameters(block.mlp, hidden, grid)
    if prediction_head:
        yield from (norm(model, name) for name in ("embedding norm", "hidden norm", "prediction norm"))
        yield Parameter("prediction projection", 2 * hidden * hidden / grid.tp)


def norm(model: Transformer, name: str, width: int = 0) -> Parameter:
    """A norm over `width` (the hidden size if 0): scale, and shift for LayerNorm."""
    return Parameter(name, (width or model.hidden_size) * (2 if model.norm == "layer" else 1))


def _attention_parameters(attention: Attention, model: Transformer, grid: Grid) -> Iterator[Parameter]:
    if isinstance(attention, MlaAttention):
        yield from _latent_parameters(attention, model, grid)
    elif isinstance(attention, LinearAttention):
        yield from _linear_parameters(attention, model.hidden_size, grid)
    else:
        yield from _softmax_parameters(attention, model, grid)


def _softmax_parameters(attention: SoftmaxAttention, model: Transformer, grid: Grid) -> Iterator[Parameter]:
    hidden = model.hidden_size
    query = attention.heads * attention.head_dim / grid.tp
    key = key_value_heads(attention, grid) * attention.head_dim
    inputs = [("query", query), ("key", key), ("value", key)]
    if attention.output_gate:
        inputs.append(("output gate", query))
    for name, width in inputs:
        yield Parameter(name, hidden * width, rows=width)
        if attention.bias:
            yield Parameter(f"{name} bias", width)
    yield Parameter("attention output", query * hidden, rows=hidden)
    if attention.has_output_bias:
        yield Parameter("attention output bias", hidden)
    if attention.qk_norm:
        yield norm(model, "query norm", attention.head_dim)
        yield norm(model, "key norm", attention.head_dim)
    if attention.sinks:
        yield Parameter("sinks", attention.heads / grid.tp)


def key_value_heads(attention: SoftmaxAttention | LinearAttention, grid: Grid) -> float:
    """Key/value heads on a rank; with more ranks than heads every rank keeps one copy."""
    return max(attention.kv_heads / grid.tp, 1.0)


def _latent_parameters(attention: MlaAttention, model: Transformer, grid: Grid) -> Iterator[Parameter]:
    nope, rope, value = attention.qk_nope_head_dim, attention.qk_rope_head_dim, attention.v_head_dim
    rank, hidden = attention.q_lora_rank, model.hidden_size
    if rank:
        yield Parameter("query down", hidden * rank)
        yield norm(model, "query latent norm", rank)
    heads = attention.heads / grid.tp
    yield Parameter("query up", (rank or hidden) * heads * (nope + rope), rows=heads * (nope + rope))
    yield Parameter("key-value down", hidden * (attention.kv_lora_rank + rope))
    yield norm(model, "key-value latent norm", attention.kv_lora_rank)
    yield Parameter("key and value up", attention.kv_lora_rank * heads * (nope + value), rows=heads * (nope + value))
    yield Parameter("attention output", heads * value * hidden, rows=hidden)


def _linear_parameters(attention: LinearAttention, hidden: int, grid: Grid) -> Iterator[Parameter]:
    heads = attention.heads / grid.tp
    key, value = key_value_heads(attention, grid) * attention.key_head_dim, heads * attention.head_dim
    inputs = [("query", key), ("key", key), ("value", value), ("decays", heads * attention.decays_per_head)]
    if attention.gate:
        inputs.append(("gate", value))
    for name, width in inputs:
        yield Parameter(f"recurrent {name}", hidden * width, rows=0.0 if name == "decays" else width)
        if attention.bias:
            yield Parameter(f"recurrent {name} bias", width)
    for name, width in inputs[:3]:
        yield Parameter(f"{name} convolution", attention.conv_kernel * width)
    if attention.decays_per_head:
        for name in ("decay rate", "step bias", "skip"):
            yield Parameter(name, heads)
    yield Parameter("recurrent norm", attention.head_dim)
    yield Parameter("recurrent output", value * hidden, rows=hidden)
    if attention.bias:
        yield Parameter("recurrent output bias", hidden)


def _dense_parameters(mlp: DenseMlp, hidden: int, grid: Grid) -> Iterator[Parameter]:
    width = mlp.hidden_size / grid.tp
    for name in ("gate", "up") if mlp.gated else ("up",):
        yield Parameter(f"mlp {name}", hidden * width, rows=width)
        if mlp.bias:
            yield Parameter(f"mlp {name} bias", width)
    yield Parameter("mlp down", width * hidden, rows=hidden)
    if mlp.bias:
        yield Parameter("mlp down bias", hidden)


def _moe_parameters(mlp: MoeMlp, hidden: int, grid: Grid) -> Iterator[Parameter]:
    names = ("gate", "up", "down") if mlp.gated else ("up", "down")
    yield Parameter("router", hidden * mlp.experts)
    if mlp.router_bias:
        yield Parameter("router bias", mlp.experts)
    local_experts = mlp.experts / grid.ep
    width = mlp.hidden_size / grid.etp
    for name in names:
        yield Parameter(f"experts {name}", local_experts * hidden * width, routed=True)
        if mlp.bias:
            yield Parameter(f"experts {name} bias", local_experts * (hidden if name == "down" else width), routed=True)
        if mlp.shared_hidden_size:
            shared = mlp.shared_hidden_size / grid.tp
            yield Parameter(f"shared expert {name}", hidden * shared, rows=hidden if name == "down" else shared)
    if mlp.shared_gate:
        yield Parameter("shared expert gate", hidden)
