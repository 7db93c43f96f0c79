"""Number of parameters of a transformer, by the usual formulas (h hidden, a heads, g key/value heads, d head width, f width)."""

from __future__ import annotations

from solver.problem.model import Attention, Block, MlaAttention, Mlp, MoeMlp, Transformer


def parameter_count(transformer: Transformer, *, with_mtp: bool = True) -> int:
    """All parameters: embeddings (twice if untied), positions, blocks with their norms, final norm, prediction layers."""
    h, vocabulary = transformer.hidden_size, transformer.vocab_size
    embeddings = vocabulary * h * (1 if transformer.tied_embeddings else 2)
    positions = (transformer.learned_positions or 0) * h
    blocks = sum(block.repeat * block_parameters(block, transformer) for block in transformer.blocks)
    mtp = transformer.mtp_layers * mtp_parameters(transformer) if with_mtp else 0
    return embeddings + positions + blocks + norm_parameters(transformer, h) + mtp


def norm_parameters(transformer: Transformer, width: int) -> int:
    """Scale, and shift for a layer norm."""
    return width * (2 if transformer.norm == "layer" else 1)


def block_parameters(block: Block, transformer: Transformer) -> int:
    """One layer of a block: attention, feed-forward, a norm before each."""
    total = 0
    if block.attention is not None:
        total += attention_parameters(block.attention, transformer) + norm_parameters(transformer, transformer.hidden_size)
    if block.mlp is not None:
        total += mlp_parameters(block.mlp, transformer.hidden_size) + norm_parameters(transformer, transformer.hidden_size)
    return total


def attention_parameters(attention: Attention, transformer: Transformer) -> int:
    """Softmax (or linear): h a d + 2 h g d + a d h. Latent: see _latent_parameters."""
    h = transformer.hidden_size
    if isinstance(attention, MlaAttention):
        return _latent_parameters(attention, transformer)
    a, g, d = attention.heads, attention.kv_heads, attention.head_dim
    bias = (a + 2 * g) * d + h if attention.bias else 0
    qk_norm = 2 * norm_parameters(transformer, d) if attention.kind == "softmax" and attention.qk_norm else 0
    return h * a * d + 2 * h * g * d + a * d * h + bias + qk_norm


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


def mlp_parameters(mlp: Mlp, h: int) -> int:
    """Dense: 3 h f gated, 2 h f else. Routed: the same for every expert and the shared ones, router h E, shared gate h."""
    projections = 3 if mlp.gated else 2
    if isinstance(mlp, MoeMlp):
        experts = projections * h * (mlp.experts * mlp.hidden_size + mlp.shared_hidden_size)
        return experts + h * mlp.experts + (h if mlp.shared_gate else 0)
    bias = (projections - 1) * mlp.hidden_size + h if mlp.bias else 0
    return projections * h * mlp.hidden_size + bias


def mtp_parameters(transformer: Transformer) -> int:
    """A multi-token-prediction layer: one of the last kind, a 2 h x h projection, three norms; embedding and head are shared."""
    h = transformer.hidden_size
    return block_parameters(transformer.blocks[-1], transformer) + 2 * h * h + 3 * norm_parameters(transformer, h)
