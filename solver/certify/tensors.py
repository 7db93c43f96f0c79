"""The tensors one rank holds, listed by name: parameters, and what a layer saves for its backward.

Own arithmetic of the certificate, on purpose apart from `solver.cost`, which computes the same in arrays. Sizes follow the
parameter buckets of Megatron-Core (tensor-sharded, replicated, routed experts) and traced saved bytes per token and layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from solver.problem.model import Attention, Block, DenseMlp, MlaAttention, MoeMlp, SoftmaxAttention, Transformer
from solver.problem.workload import Kernels

VOCABULARY_MULTIPLE = 128


class Parameter(NamedTuple):
    """A weight as this rank keeps it before any data-parallel sharding: how many numbers; `routed`: one of the routed experts."""

    name: str
    numbers: float
    routed: bool = False


class Saved(NamedTuple):
    """A tensor of one layer and micro-batch kept for the backward; `rebuilt_by` names the recompute module that drops it."""

    name: str
    size_bytes: float
    rebuilt_by: str = ""


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

    @property
    def local_tokens(self) -> float:
        """Tokens of norms and residuals: spread over tp only under sequence parallelism."""
        return self.tokens / self.tp if self.sequence_parallel else self.tokens


def padded_vocabulary(vocab_size: int, tp: int) -> int:
    """Rows of the embedding table: a multiple of 128 tp (Megatron's make-vocab-size-divisible-by)."""
    multiple = VOCABULARY_MULTIPLE * tp
    return (vocab_size + multiple - 1) // multiple * multiple


def table_numbers(model: Transformer, grid: Grid) -> float:
    """Numbers of this rank's slice of the embedding table or of the output projection."""
    return padded_vocabulary(model.vocab_size, grid.tp) * model.hidden_size / grid.tp


# ---------------------------------------------------------------------------------------------------------------- parameters
def layer_parameters(model: Transformer, block: Block, grid: Grid, *, prediction_head: bool = False) -> Iterator[Parameter]:
    """Weights of one layer; a `prediction_head` (multi-token prediction) adds two norms, a projection and a final norm."""
    hidden = model.hidden_size
    yield from (norm(model, name) for name in ("attention norm", "mlp norm"))
    if block.attention is not None:
        yield from _attention_parameters(block.attention, hidden, grid)
    if isinstance(block.mlp, DenseMlp):
        yield from _dense_parameters(block.mlp, hidden, grid)
    elif isinstance(block.mlp, MoeMlp):
        yield from _moe_parameters(block.mlp, hidden, grid)
    if prediction_head:
        yield from (norm(model, name) for name in ("embedding norm", "hidden norm", "prediction norm"))
        yield Parameter("prediction projection", 2 * hidden * hidden / grid.tp)


def norm(model: Transformer, name: str) -> Parameter:
    """A norm over the hidden size: scale, and shift for LayerNorm."""
    return Parameter(name, model.hidden_size * (2 if model.norm == "layer" else 1))


def _attention_parameters(attention: Attention, hidden: int, grid: Grid) -> Iterator[Parameter]:
    if isinstance(attention, MlaAttention):
        yield from _latent_parameters(attention, hidden, grid)
        return
    assert isinstance(attention, SoftmaxAttention), "linear attention is refused before"
    query = attention.heads * attention.head_dim / grid.tp
    key = key_value_heads(attention, grid) * attention.head_dim
    yield Parameter("query", hidden * query)
    yield Parameter("key", hidden * key)
    yield Parameter("value", hidden * key)
    yield Parameter("attention output", query * hidden)
    if attention.bias:
        yield Parameter("query bias", query)
        yield Parameter("key bias", key)
        yield Parameter("value bias", key)
        yield Parameter("attention output bias", hidden)
    if attention.qk_norm:
        yield Parameter("query norm", attention.head_dim)
        yield Parameter("key norm", attention.head_dim)


def key_value_heads(attention: SoftmaxAttention, grid: Grid) -> float:
    """Key/value heads on a rank; with more ranks than heads every rank keeps one copy."""
    return max(attention.kv_heads / grid.tp, 1.0)


def _latent_parameters(attention: MlaAttention, hidden: int, grid: Grid) -> Iterator[Parameter]:
    nope, rope, value = attention.qk_nope_head_dim, attention.qk_rope_head_dim, attention.v_head_dim
    rank = attention.q_lora_rank
    if rank:
        yield Parameter("query down", hidden * rank)
        yield Parameter("query latent norm", rank)
    yield Parameter("query up", (rank or hidden) * attention.heads * (nope + rope) / grid.tp)
    yield Parameter("key-value down", hidden * (attention.kv_lora_rank + rope))
    yield Parameter("key-value latent norm", attention.kv_lora_rank)
    yield Parameter("key up", attention.kv_lora_rank * attention.heads * nope / grid.tp)
    yield Parameter("value up", attention.kv_lora_rank * attention.heads * value / grid.tp)
    yield Parameter("attention output", attention.heads * value * hidden / grid.tp)


def _dense_parameters(mlp: DenseMlp, hidden: int, grid: Grid) -> Iterator[Parameter]:
    width = mlp.hidden_size / grid.tp
    for name in ("gate", "up") if mlp.gated else ("up",):
        yield Parameter(f"mlp {name}", hidden * width)
        if mlp.bias:
            yield Parameter(f"mlp {name} bias", width)
    yield Parameter("mlp down", width * hidden)
    if mlp.bias:
        yield Parameter("mlp down bias", hidden)


def _moe_parameters(mlp: MoeMlp, hidden: int, grid: Grid) -> Iterator[Parameter]:
    names = ("gate", "up", "down") if mlp.gated else ("up", "down")
    yield Parameter("router", hidden * mlp.experts)
    local_experts = mlp.experts / grid.ep
    for name in names:
        yield Parameter(f"experts {name}", local_experts * hidden * mlp.hidden_size / grid.etp, routed=True)
        if mlp.shared_hidden_size:
            yield Parameter(f"shared expert {name}", hidden * mlp.shared_hidden_size / grid.tp)
    if mlp.shared_gate:
        yield Parameter("shared expert gate", hidden)


# --------------------------------------------------------------------------------------------------------------- saved bytes
def saved_tensors(
    model: Transformer, block: Block, grid: Grid, kernels: Kernels, *, prediction_head: bool = False
) -> Iterator[Saved]:
    """What one layer keeps of one micro-batch when nothing is recomputed."""
    row = grid.element_bytes * model.hidden_size * grid.local_tokens
    for name in ("attention", "mlp"):
        yield Saved(f"{name} norm input", row)
        yield Saved(f"{name} norm output", row, rebuilt_by="layernorm")
        if kernels.norm == "eager" and model.norm == "rms":
            yield Saved(f"{name} norm in fp32", 6 * model.hidden_size * grid.local_tokens)
        if kernels.dropout > 0:
            yield Saved(f"{name} dropout mask", model.hidden_size * grid.local_tokens)
    if block.attention is not None:
        yield from _attention_saved(block.attention, grid, kernels)
    if isinstance(block.mlp, DenseMlp):
        yield from _mlp_saved(
            "mlp", block.mlp.hidden_size / grid.tp * grid.tokens, block.mlp.gated, grid, kernels, rebuilt_by="mlp"
        )
    elif isinstance(block.mlp, MoeMlp):
        yield from _moe_saved(block.mlp, model.hidden_size, grid, kernels)
    if prediction_head:
        for name in ("embedding", "hidden state", "projected state"):
            yield Saved(f"prediction {name}", row)


def layer_input(model: Transformer, grid: Grid) -> Saved:
    """All that a fully recomputed layer keeps."""
    return Saved("layer input", grid.element_bytes * model.hidden_size * grid.local_tokens)


def _attention_saved(attention: Attention, grid: Grid, kernels: Kernels) -> Iterator[Saved]:
    token = grid.element_bytes * grid.tokens
    heads = attention.heads / grid.tp
    if isinstance(attention, MlaAttention):
        yield from _latent_saved(attention, grid)
    else:
        assert isinstance(attention, SoftmaxAttention), "linear attention is refused before"
        query, key = heads * attention.head_dim, key_value_heads(attention, grid) * attention.head_dim
        for name, width in (("query", query), ("key", key), ("value", key), ("attention output", query)):
            yield Saved(name, token * width)
        if attention.qk_norm:
            yield Saved("query before its norm", token * query)
            yield Saved("key before its norm", token * key)
    if kernels.attention == "flash":
        yield Saved("log-sum-exp", 4 * heads * grid.tokens, rebuilt_by="core_attn")
        return
    scores = heads * grid.row_tokens * grid.tokens
    yield Saved("scores", grid.element_bytes * scores, rebuilt_by="core_attn")
    if kernels.dropout > 0:
        yield Saved("score dropout mask", scores, rebuilt_by="core_attn")
        yield Saved("scores after dropout", grid.element_bytes * scores, rebuilt_by="core_attn")


def _latent_saved(attention: MlaAttention, grid: Grid) -> Iterator[Saved]:
    token = grid.element_bytes * grid.tokens
    heads = attention.heads / grid.tp
    width = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    for name in ("before", "after"):
        if attention.q_lora_rank:
            yield Saved(f"query latent {name} its norm", token * attention.q_lora_rank)
        yield Saved(f"key-value latent {name} its norm", token * attention.kv_lora_rank)
    yield Saved("rotary key", token * attention.qk_rope_head_dim)
    yield Saved("query", token * heads * width, rebuilt_by="mla_up_proj")
    yield Saved("key", token * heads * width, rebuilt_by="mla_up_proj")
    yield Saved("value", token * heads * attention.v_head_dim, rebuilt_by="mla_up_proj")
    yield Saved("attention output", token * heads * attention.v_head_dim)


def _mlp_saved(name: str, numbers: float, gated: bool, grid: Grid, kernels: Kernels, *, rebuilt_by: str) -> Iterator[Saved]:
    """Projections and the input of the last one; an eager gated activation keeps silu(gate) too. `numbers`: width x tokens."""
    size_bytes = grid.element_bytes * numbers
    yield Saved(f"{name} up", size_bytes, rebuilt_by)
    yield Saved(f"{name} activated", size_bytes, rebuilt_by)
    if gated:
        yield Saved(f"{name} gate", size_bytes, rebuilt_by)
        if kernels.glu == "eager":
            yield Saved(f"{name} silu of the gate", size_bytes, rebuilt_by)


def _moe_saved(mlp: MoeMlp, hidden: int, grid: Grid, kernels: Kernels) -> Iterator[Saved]:
    """Routed rows: every token goes to top_k experts; the busiest rank takes `expert_imbalance` times the mean."""
    yield Saved("router logits", 4 * mlp.experts * grid.local_tokens)
    rows = grid.expert_imbalance * mlp.top_k * grid.local_tokens
    yield Saved("dispatched rows", grid.element_bytes * rows * grid.etp * hidden)
    for tensor in _mlp_saved("experts", rows * mlp.hidden_size, mlp.gated, grid, kernels, rebuilt_by=""):
        yield tensor._replace(rebuilt_by="moe_act") if tensor.name == "experts activated" else tensor
    yield Saved("rows to combine", grid.element_bytes * rows * hidden)
    if mlp.shared_hidden_size:
        numbers = mlp.shared_hidden_size / grid.tp * grid.tokens
        yield from _mlp_saved("shared expert", numbers, mlp.gated, grid, kernels, rebuilt_by="shared_experts")
