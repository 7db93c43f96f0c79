"""What a run measured, as seconds of a step: `step_time_s`, else tokens/s, else TFLOP/s by the convention its source counts in.

Conventions and their checks: README of the measurements ("FLOP conventions"). Per token; P = matmul parameters of the layers
(active experts only), Vh = logits, Lq = layers x heads x head_dim, s = sequence length.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.validate.rows import Row

PER_PARAMETER = {"bs_8P_size": 8.0, "bs_8P_1.3B": 8.0, "bs_6P_1.3B": 6.0}
NOMINAL_1B3 = 1.3e9


@dataclass(frozen=True, slots=True)
class Measured:
    """`kind` is the column that was used; step_s None when no column can be compared."""

    step_s: float | None
    kind: str | None


def measured_step(row: Row) -> Measured:
    """The measured step of a run that ended well."""
    if row.status not in (None, "ok"):
        return Measured(None, None)
    if row.step_time_s:
        return Measured(row.step_time_s, "step_time_s")
    if row.gbs is None or row.seq_len is None or row.gpus is None:
        return Measured(None, None)
    tokens = row.gbs * row.seq_len
    if row.tokens_s_gpu:
        return Measured(tokens / (row.tokens_s_gpu * row.gpus), "tokens_s_gpu")
    flops = flops_per_token(row)
    if row.tflops_gpu and flops is not None:
        return Measured(tokens * flops / (row.tflops_gpu * 1e12 * row.gpus), "tflops_gpu")
    return Measured(None, None)


def flops_per_token(row: Row) -> float | None:
    """FLOPs a token in the row's convention; None where it does not convert (nv_sft, nv_lora, none) or a size is missing.

    `nv_unverified` (full or half attention unknown) is read as full, the convention of those years (megatron_model).
    """
    convention = row.flops_convention
    if convention in PER_PARAMETER:
        nominal = NOMINAL_1B3 if convention.endswith("1.3B") else (row.params_b or 0.0) * 1e9
        return PER_PARAMETER[convention] * nominal or None
    if not (row.layers and row.hidden and row.seq_len):
        return None
    layers, hidden, length = float(row.layers), float(row.hidden), float(row.seq_len)
    if convention == "bs_8P":
        return 8.0 * 12.0 * layers * hidden**2
    if convention == "mosaic":
        return 6.0 * row.params_b * 1e9 + 12.0 * layers * hidden * length if row.params_b else None
    if convention == "palm_nanogpt":
        counted = (row.params_b or 0.0) * 1e9 or parameters(row)
        return 6.0 * counted + 12.0 * layers * hidden * length if counted else None
    if not row.vocab:
        return None
    if convention == "megatron_hw":
        return 96.0 * layers * hidden**2 * (1.0 + length / (6.0 * hidden) + row.vocab / (16.0 * layers * hidden))
    return _by_products(row, convention)


def _by_products(row: Row, convention: str | None) -> float | None:
    """Conventions of the form a (P + Vh) + b Lq s."""
    products = layer_products(row)
    if products is None or not (row.layers and row.hidden and row.heads and row.seq_len and row.vocab):
        return None
    counted = products + float(row.vocab) * row.hidden
    scores = float(row.layers) * row.heads * (row.head_dim or row.hidden // row.heads) * row.seq_len
    if convention in ("megatron_model", "nv_unverified"):
        return 6.0 * counted + 12.0 * scores
    if convention == "nv_model":
        return 6.0 * counted + 6.0 * scores
    if convention == "internevo_megatron":
        passes = 3.0 if row.recompute in (None, "none") else 4.0
        return passes * (2.0 * counted + 4.0 * scores)
    return None


def layer_products(row: Row) -> float | None:
    """Matmul parameters of all layers that a token passes."""
    if not (row.layers and row.hidden and row.heads):
        return None
    width = row.head_dim or row.hidden // row.heads
    keys = row.kv_heads or row.heads
    attention = row.hidden * width * (2.0 * row.heads + 2.0 * keys)
    matrices = 3.0 if row.gated_mlp else 2.0
    dense_layers = float(row.layers)
    total = row.layers * attention
    if row.n_experts:
        dense_layers = float(row.n_dense_layers or 0)
        active = (row.topk or 0) * (row.moe_ffn or 0) + (row.shared_ffn or 0)
        total += (row.layers - dense_layers) * (matrices * row.hidden * active + row.hidden * row.n_experts)
    return total + dense_layers * matrices * row.hidden * (row.ffn or 4 * row.hidden)


def parameters(row: Row) -> float | None:
    """All parameters of a dense model, norms and biases apart."""
    products = layer_products(row)
    if products is None or not (row.vocab and row.hidden):
        return None
    return products + row.vocab * row.hidden * (2.0 if row.gated_mlp else 1.0)
