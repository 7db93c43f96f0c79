"""What a layer saves of one micro-batch for its backward, tensor by tensor: own arithmetic of the certificate.

Sizes follow traced saved bytes per token and layer (autograd's saved tensors, storage by storage, without weights).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from solver.certify.tensors import Grid, key_value_heads
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
from solver.problem.workload import Workload

ATTENTION_CORE = "core_attn"


class Saved(NamedTuple):
    """A tensor kept for the backward. `rebuilt_by`: the recompute module that drops it; `operator`: a result of attention or of
    one of the products that operator-wise selective recompute keeps."""

    name: str
    size_bytes: float
    rebuilt_by: str = ""
    operator: bool = False


@dataclass(frozen=True)
class Software:
    """What decides which tensors exist besides the model."""

    unfused_attention: bool
    eager_activation: bool
    eager_norm_bytes: float
    dropout: bool
    permute_copies: float

    @staticmethod
    def of(workload: Workload) -> Software:
        """The kernels and the profile of a workload."""
        kernels = workload.kernels
        return Software(
            unfused_attention=kernels.attention == "unfused",
            eager_activation=kernels.glu == "eager",
            eager_norm_bytes=workload.software.assumptions["eager_norm_kept_bytes"] if kernels.norm == "eager" else 0.0,
            dropout=kernels.dropout > 0,
            permute_copies=workload.software.assumptions["expert_permute_copies"],
        )


def layer_input(model: Transformer, grid: Grid) -> Saved:
    """All that a fully recomputed layer keeps."""
    return Saved("layer input", grid.element_bytes * model.hidden_size * grid.local_tokens, operator=True)


def saved_tensors(
    model: Transformer, block: Block, grid: Grid, software: Software, *, prediction_head: bool = False
) -> Iterator[Saved]:
    """What one layer keeps of one micro-batch when nothing is recomputed."""
    yield from _norm_saved(model, block, grid, software)
    if block.attention is not None:
        yield from _attention_saved(block.attention, grid, software)
    if isinstance(block.mlp, DenseMlp):
        numbers = block.mlp.hidden_size / grid.tp * grid.tokens
        yield from _mlp_saved("mlp", numbers, block.mlp.gated, grid, software, rebuilt_by="mlp")
    elif isinstance(block.mlp, MoeMlp):
        yield from _moe_saved(block.mlp, model.hidden_size, grid, software)
    if prediction_head:
        for name in ("embedding", "hidden state", "projected state"):
            yield Saved(f"prediction {name}", layer_input(model, grid).size_bytes)


def operator_saved(model: Transformer, block: Block, grid: Grid, software: Software) -> Iterator[Saved]:
    """Kept when all but attention and every second product is rebuilt: those, the layer's input, a gated MLP's result."""
    yield layer_input(model, grid)
    yield from (tensor for tensor in saved_tensors(model, block, grid, software) if tensor.operator)
    if block.mlp is not None and isinstance(block.mlp, DenseMlp) and block.mlp.gated:
        yield layer_input(model, grid)._replace(name="mlp result")


def _norm_saved(model: Transformer, block: Block, grid: Grid, software: Software) -> Iterator[Saved]:
    """Norms before a sublayer keep input and output, those behind one their input; parallel sublayers read one input."""
    row = layer_input(model, grid).size_bytes
    sublayers = [name for name, part in (("attention", block.attention), ("mlp", block.mlp)) if part is not None]
    for number in range(block.norm_count):
        before = number < len(sublayers)
        if not (before and block.parallel and number > 0):
            yield Saved(f"norm {number} input", row)
        if before:
            yield Saved(f"norm {number} output", row, rebuilt_by="layernorm")
        if model.norm == "rms" and software.eager_norm_bytes:
            yield Saved(f"norm {number} in fp32", software.eager_norm_bytes * model.hidden_size * grid.local_tokens)
    if software.dropout:
        for name in sublayers:
            yield Saved(f"{name} dropout mask", model.hidden_size * grid.local_tokens)


def _attention_saved(attention: Attention, grid: Grid, software: Software) -> Iterator[Saved]:
    if isinstance(attention, LinearAttention):
        yield from _linear_saved(attention, grid)
        return
    if isinstance(attention, MlaAttention):
        yield from _latent_saved(attention, grid)
    else:
        yield from _softmax_saved(attention, grid)
    heads = attention.heads / grid.tp
    if not software.unfused_attention:
        yield Saved("log-sum-exp", 4 * heads * grid.tokens, ATTENTION_CORE, operator=True)
        return
    scores = heads * grid.row_tokens * grid.tokens
    yield Saved("scores", grid.element_bytes * scores, ATTENTION_CORE, operator=True)
    if software.dropout:
        yield Saved("score dropout mask", scores, ATTENTION_CORE, operator=True)
        yield Saved("scores after dropout", grid.element_bytes * scores, ATTENTION_CORE, operator=True)


def _softmax_saved(attention: SoftmaxAttention, grid: Grid) -> Iterator[Saved]:
    token = grid.element_bytes * grid.tokens
    query = attention.heads / grid.tp * attention.head_dim
    key = key_value_heads(attention, grid) * attention.head_dim
    yield Saved("query", token * query, operator=True)
    yield Saved("key", token * key)
    yield Saved("value", token * key, operator=True)
    yield Saved("attention output", token * query, operator=True)
    if attention.qk_norm:
        yield Saved("query before its norm", token * query)
        yield Saved("key before its norm", token * key)
    if attention.output_gate:
        yield Saved("output gate", token * query, operator=True)
        yield Saved("gated output", token * query)


def _latent_saved(attention: MlaAttention, grid: Grid) -> Iterator[Saved]:
    token = grid.element_bytes * grid.tokens
    heads = attention.heads / grid.tp
    width = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    for name, operator in (("before", True), ("after", False)):
        if attention.q_lora_rank:
            yield Saved(f"query latent {name} its norm", token * attention.q_lora_rank, operator=operator)
        yield Saved(f"key-value latent {name} its norm", token * attention.kv_lora_rank, operator=operator)
    yield Saved("rotary key", token * attention.qk_rope_head_dim, operator=True)
    yield Saved("query", token * heads * width, "mla_up_proj", operator=True)
    yield Saved("key", token * heads * width, "mla_up_proj")
    yield Saved("value", token * heads * attention.v_head_dim, "mla_up_proj")
    yield Saved("attention output", token * heads * attention.v_head_dim, operator=True)


def _linear_saved(attention: LinearAttention, grid: Grid) -> Iterator[Saved]:
    """A chunked linear recurrence: its inputs before and after the convolution, gate, results, decays, chunk matrices."""
    token = grid.element_bytes * grid.tokens
    heads = attention.heads / grid.tp
    key, value = key_value_heads(attention, grid) * attention.key_head_dim, heads * attention.head_dim
    for name, width in (("query", key), ("key", key), ("value", value)):
        yield Saved(f"recurrent {name}", token * width, operator=True)
        if attention.conv_kernel:
            yield Saved(f"recurrent {name} after its convolution", token * width)
    yield Saved("recurrent result", token * value, operator=True)
    yield Saved("normed result", token * value)
    if attention.gate:
        yield Saved("gate", token * value)
    yield Saved("decays", 4 * attention.decays_per_head * heads * grid.tokens)
    yield Saved("chunk matrices", token * heads * attention.chunk_tokens)


def _mlp_saved(name: str, numbers: float, gated: bool, grid: Grid, software: Software, *, rebuilt_by: str) -> Iterator[Saved]:
    """Projections and the input of the last one; an eager gated activation keeps silu(gate) too. `numbers`: width x tokens."""
    size_bytes = grid.element_bytes * numbers
    yield Saved(f"{name} up", size_bytes, rebuilt_by, operator=True)
    yield Saved(f"{name} activated", size_bytes, rebuilt_by)
    if gated:
        yield Saved(f"{name} gate", size_bytes, rebuilt_by)
        if software.eager_activation:
            yield Saved(f"{name} silu of the gate", size_bytes, rebuilt_by)


def _moe_saved(mlp: MoeMlp, hidden: int, grid: Grid, software: Software) -> Iterator[Saved]:
    """Routed rows: every token goes to top_k experts; the busiest rank takes `expert_imbalance` times the mean."""
    yield Saved("router logits", 4 * mlp.experts * grid.local_tokens, operator=True)
    rows = grid.expert_imbalance * mlp.top_k * grid.local_tokens
    if software.permute_copies:
        yield Saved("router input in fp32", software.permute_copies * 4 * hidden * grid.local_tokens, operator=True)
        yield Saved("permuted rows", software.permute_copies * grid.element_bytes * rows * hidden)
        yield Saved("permutation indices", software.permute_copies * 26 * rows)
    yield Saved("dispatched rows", grid.element_bytes * rows * grid.etp * hidden)
    for tensor in _mlp_saved("experts", rows * mlp.hidden_size, mlp.gated, grid, software, rebuilt_by=""):
        yield tensor._replace(rebuilt_by="moe_act" if tensor.name == "experts activated" else "", operator=False)
    yield Saved("rows to combine", grid.element_bytes * rows * hidden, operator=True)
    if mlp.shared_hidden_size:
        numbers = mlp.shared_hidden_size / grid.tp * grid.tokens
        yield from _mlp_saved("shared expert", numbers, mlp.gated, grid, software, rebuilt_by="shared_experts")
