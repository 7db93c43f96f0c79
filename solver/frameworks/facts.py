"""The sizes of a problem that rules speak about, read once per problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from solver.problem.cluster import Cluster
from solver.problem.model import Attention, Mlp
from solver.problem.problem import Problem
from solver.problem.workload import Workload


@dataclass(frozen=True)
class Facts:
    """Distinct sizes over the layers (sorted); `rows` and `tolerance` are the global batch in sequences, None when in tokens.

    linear_heads: value and key heads of linear attention, which are among heads and kv_heads too. packs: rows hold several
    documents.

    plain_states: optimizer states and main gradients are all fp32.
    """

    layers: int
    mtp_layers: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    linear_heads: tuple[int, ...]
    dense_ffn: tuple[int, ...]
    shared_ffn: tuple[int, ...]
    expert_ffn: tuple[int, ...]
    experts: tuple[int, ...]
    linear_bias: bool
    vocab_size: int
    learned_positions: int | None
    row_tokens: int
    rows: int | None
    tolerance: float
    devices: int
    optimizer: str
    plain_states: bool
    precision: str
    packs: bool

    @property
    def moe(self) -> bool:
        return bool(self.experts)

    def words(self) -> dict[str, object]:
        """Facts as they appear in messages: one size as a number, several as a list, none by that word."""
        found: dict[str, object] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            found[entry.name] = (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else value
        return found


def _distinct(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({size for size in sizes if size}))


def _key_value_heads(attention: Attention) -> int:
    """Heads that the keys and values have of their own; latent attention makes them per query head."""
    return 0 if attention.kind == "mla" else attention.kv_heads


def _dense_ffn(mlp: Mlp) -> int:
    return mlp.hidden_size if mlp.kind == "dense" else 0


def read_facts(problem: Problem) -> Facts:
    """Facts of a parsed problem with a transformer."""
    model, batch = problem.transformer, problem.workload.global_batch
    attentions = [block.attention for block in model.blocks if block.attention is not None]
    mlps = [block.mlp for block in model.blocks if block.mlp is not None]
    moes = [mlp for mlp in mlps if mlp.kind == "moe"]
    return Facts(
        layers=model.layers,
        mtp_layers=model.mtp_layers,
        heads=_distinct(attention.heads for attention in attentions),
        kv_heads=_distinct(_key_value_heads(attention) for attention in attentions),
        linear_heads=_distinct(
            heads for attention in attentions if attention.kind == "linear" for heads in (attention.heads, attention.kv_heads)
        ),
        dense_ffn=_distinct(_dense_ffn(mlp) for mlp in mlps),
        shared_ffn=_distinct(mlp.shared_hidden_size for mlp in moes),
        expert_ffn=_distinct(mlp.hidden_size for mlp in moes),
        experts=_distinct(mlp.experts for mlp in moes),
        linear_bias=any(mlp.bias for mlp in mlps),
        vocab_size=model.vocab_size,
        learned_positions=model.learned_positions,
        row_tokens=problem.workload.max_sequence_length,
        rows=batch.sequences if batch.sequences is not None else _rows_of_tokens(problem),
        tolerance=batch.tolerance,
        devices=_all_devices(problem.cluster),
        optimizer=problem.workload.optimizer.name,
        plain_states=_plain_states(problem.workload),
        precision=problem.workload.precision,
        packs="packed" in problem.workload.batching and not problem.workload.sequence_lengths.is_constant,
    )


def _plain_states(workload: Workload) -> bool:
    optimizer = workload.optimizer
    return workload.precision == "fp32" or {optimizer.master, optimizer.moments, optimizer.main_gradient} == {"fp32"}


def _rows_of_tokens(problem: Problem) -> int | None:
    """Rows of a batch given in tokens, where every row is equally long; otherwise they differ from batch to batch."""
    batch, constant = problem.workload.global_batch, problem.workload.sequence_lengths.constant
    if batch.tokens is None or constant is None:
        return None
    if batch.tokens % problem.workload.max_sequence_length:
        return None
    return batch.tokens // problem.workload.max_sequence_length


def _all_devices(cluster: Cluster) -> int:
    return sum(group.nodes * group.devices_per_node for group in cluster.groups)
