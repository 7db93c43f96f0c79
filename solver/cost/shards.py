"""Shards cut by rows: what the largest shard holds over an equal share (FSDP2 shards the first dimension of every tensor, each
rank up to ceil(rows / ranks) of them; flat buffers are padded by a few elements, which is ignored)."""

from __future__ import annotations

import numpy as np

from solver.cost.architecture import Architecture, LayerKind, padded_vocabulary
from solver.problem import Attention

Matrix = tuple[np.ndarray, np.ndarray]
"""(rows, columns) of a weight on a tensor rank, at an array of meshes"""


def row_excess(shape: Architecture, tp: np.ndarray, ranks: np.ndarray, vocabulary_multiple: float) -> np.ndarray:
    """Elements of the largest shard x ranks over all elements, of the matrices outside the routed experts of the whole model."""
    padded, whole = np.zeros(tp.shape), np.zeros(tp.shape)
    tables = 1.0 if shape.model.tied_embeddings else 2.0
    rows = padded_vocabulary(shape.model.vocab_size, tp, vocabulary_multiple) / tp
    weighted = [(tables, (rows, np.full(tp.shape, float(shape.model.hidden_size))))]
    for index, kind in enumerate(shape.kinds):
        count = float((shape.kind_of_layer == index).sum()) if not kind.prediction_head else float(shape.mtp_layers)
        weighted += [(count, matrix) for matrix in _matrices(kind, float(shape.model.hidden_size), tp)]
    for count, (height, width) in weighted:
        padded += count * np.ceil(height / ranks) * ranks * width
        whole += count * height * width
    return np.where(whole > 0.0, padded / np.maximum(whole, 1.0), 1.0)


def expert_excess(shape: Architecture, ep: np.ndarray, etp: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The same for routed experts: cut by expert, or by row of an expert where there are more ranks than experts."""
    padded, whole = np.zeros(ep.shape), np.zeros(ep.shape)
    for index, kind in enumerate(shape.kinds):
        if kind.mlp is None or kind.mlp.kind != "moe":
            continue
        count = float((shape.kind_of_layer == index).sum()) if not kind.prediction_head else float(shape.mtp_layers)
        held, width = kind.mlp.experts / ep, kind.mlp.hidden_size / etp
        height = np.where(ranks <= held, held, width)
        size = count * held * width
        padded += size * np.ceil(height / ranks) * ranks / height
        whole += size
    return np.where(whole > 0.0, padded / np.maximum(whole, 1.0), 1.0)


def _matrices(kind: LayerKind, hidden: float, tp: np.ndarray) -> list[Matrix]:
    whole = np.full(tp.shape, hidden)
    found = [] if kind.attention is None else _attention_matrices(kind.attention, whole, tp)
    mlp = kind.mlp
    width = 0.0 if mlp is None else mlp.hidden_size if mlp.kind == "dense" else mlp.shared_hidden_size
    if mlp is not None and width:
        found += [(width / tp, whole)] * (2 if mlp.gated else 1) + [(whole, width / tp)]
    return found


def _attention_matrices(attention: Attention, whole: np.ndarray, tp: np.ndarray) -> list[Matrix]:
    """Inputs and output; of a latent attention the expansions and the output."""
    heads = attention.heads / tp
    if attention.kind == "mla":
        query = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
        latent = np.full(tp.shape, float(attention.kv_lora_rank))
        depth = np.full(tp.shape, float(attention.q_lora_rank)) if attention.q_lora_rank else whole
        values = heads * (attention.qk_nope_head_dim + attention.v_head_dim)
        return [(query, depth), (values, latent), (whole, heads * attention.v_head_dim)]
    key_width = attention.key_head_dim if attention.kind == "linear" else attention.head_dim
    keys = np.maximum(attention.kv_heads / tp, 1.0) * key_width
    values = heads * attention.head_dim
    if attention.kind == "linear":
        inputs = [keys, keys, values] + ([values] if attention.gate else [])
    else:
        inputs = [values, keys, keys] + ([values] if attention.output_gate else [])
    return [(width, whole) for width in inputs] + [(whole, values)]
