"""Settings: world size, heads, sequences, context parallelism, communication."""

from __future__ import annotations

from typing import Any, Final

from solver.frameworks.megatron_core.rows import sequence_multiple
from solver.frameworks.megatron_core.settings import Settings, SettingsRule
from solver.frameworks.megatron_core.versions import LINEAR_ATTENTION, LINEAR_CONTEXT_PARALLEL, REPLICATED_KV_HEADS


def _divisors(number: int, most: int = 4096) -> list[int]:
    return [value for value in range(1, min(number, most) + 1) if number % value == 0]


def _heads(settings: Settings) -> dict[str, Any]:
    kv = settings.kv_heads or settings.heads
    return {"tp": [value for value in _divisors(settings.heads) if kv % value == 0 or value % kv == 0]}


def _whole_heads(settings: Settings) -> bool:
    """Matrix columns that tensor parallelism cuts."""
    sizes = (settings.ffn_hidden_size, settings.shared_expert_size)
    dense = all(size is None or size % settings.tp == 0 for size in sizes)
    return dense and (settings.moe_ffn_hidden_size is None or settings.moe_ffn_hidden_size % settings.expert_tp == 0)


def _scatter(settings: Settings) -> bool:
    if settings.cp == 1 or not any(kind.startswith("a2a") for kind in settings.cp_comm_types):
        return True
    cut = settings.tp * (settings.hierarchical_cp_sizes[0] if settings.hierarchical_cp_sizes else settings.cp)
    kv = settings.heads if settings.latent_attention else settings.kv_heads or settings.heads
    return settings.heads % cut == 0 and kv % cut == 0


def _linear_heads(settings: Settings) -> tuple[int, ...]:
    return tuple(count for count in (settings.linear_key_heads, settings.linear_value_heads) if count)


def _multiple(settings: Settings) -> dict[str, Any]:
    unit = sequence_multiple(settings.tp, settings.cp, settings.sequence_parallel)
    below = settings.seq_length // unit * unit
    return {"seq_length": [value for value in (below, below + unit) if value]}


def _kv_replicated(settings: Settings) -> bool:
    kv = settings.kv_heads or settings.heads
    return settings.latent_attention or kv % settings.tp == 0 or settings.tp % kv == 0


def _expert_grid(settings: Settings) -> bool:
    return settings.experts is None or settings.world_size % (settings.expert_tp * settings.ep * settings.pp) == 0


def _edp_is_dp(settings: Settings) -> bool:
    edp = settings.world_size // (settings.expert_tp * settings.ep * settings.pp)
    return settings.rank_order_ends_in_pp or settings.pp == 1 or edp == settings.dp


RULES: Final = (
    SettingsRule("MC01", "refused", ("arguments",), ("world_size", "tp", "cp", "pp"),
        "world size {s.world_size} does not divide by tp {s.tp} x pp {s.pp} x cp {s.cp} x weight shards {s.weight_shards}",
        lambda s: s.world_size % s.model_size == 0),
    SettingsRule("MC02", "refused", ("build",), ("world_size", "etp", "ep", "pp"),
        "world size {s.world_size} does not divide by expert tp {s.expert_tp} x ep {s.ep} x pp {s.pp}",
        _expert_grid, lambda s: {"etp": [value for value in _divisors(s.tp) if s.world_size % (value * s.ep * s.pp) == 0]}),
    SettingsRule("MC03", "refused", ("build",), ("rank_order_ends_in_pp",),
        "a rank order that does not end in pp needs as many expert as plain data parallel ranks", _edp_is_dp),
    SettingsRule("MC04", "silently_changed", ("arguments",), ("etp",),
        "the expert tensor parallel size is unset, so it becomes tp {s.tp}: set it",
        lambda s: s.experts is None or s.etp is not None or s.tp == 1, lambda s: {"etp": [1, s.tp]}),
    SettingsRule("MC05", "refused", ("config",), ("tp",), "tp {s.tp} does not divide the {s.heads} attention heads",
        lambda s: s.heads % s.tp == 0, _heads),
    SettingsRule("MC06", "refused", ("config",), ("tp",), "tp {s.tp} does not divide the {s.kv_heads} key/value heads",
        lambda s: s.latent_attention or (s.kv_heads or s.heads) % s.tp == 0, _heads, until=REPLICATED_KV_HEADS),
    SettingsRule("MC06", "refused", ("config",), ("tp",),
        "tp {s.tp} neither divides the {s.kv_heads} key/value heads nor is a multiple of them",
        _kv_replicated, _heads, since=REPLICATED_KV_HEADS),
    SettingsRule("MC07", "refused", ("arguments",), ("kv_channels",),
        "without --kv-channels the {s.heads} heads must divide the hidden size {s.hidden_size}",
        lambda s: s.kv_channels is not None or s.hidden_size % s.heads == 0),
    SettingsRule("MC10", "refused", ("arguments",), ("seq_length", "cp"),
        "sequences of {s.seq_length} tokens do not divide by 2 x cp {s.cp}",
        lambda s: s.cp == 1 or s.seq_length % (2 * s.cp) == 0, _multiple),
    SettingsRule("MC11", "refused", ("first_step",), ("seq_length", "cp", "tp"),
        "with sequence parallel, sequences of {s.seq_length} tokens must divide by cp {s.cp} x tp {s.tp}",
        lambda s: not s.sequence_parallel or s.seq_length % (s.cp * s.tp) == 0, _multiple),
    SettingsRule("MC12", "changed", ("arguments", "config"), ("sequence_parallel",),
        "sequence parallel is switched off at tp 1; a TransformerConfig refuses it",
        lambda s: s.tp > 1 or not s.sequence_parallel, lambda _: {"sequence_parallel": [False]}),
    SettingsRule("MC13", "refused", ("arguments",), ("seq_length", "max_positions"),
        "{s.seq_length} tokens exceed the {s.max_positions} positions",
        lambda s: s.max_positions is None or s.seq_length <= s.max_positions, lambda s: {"max_positions": [s.seq_length]}),
    SettingsRule("MC36", "refused", ("arguments",), ("device_max_connections",),
        "tensor or context parallelism before Blackwell needs CUDA_DEVICE_MAX_CONNECTIONS=1",
        lambda s: s.blackwell or s.fsdp is not None or s.tp * s.cp == 1 or s.device_max_connections == 1,
        lambda _: {"device_max_connections": [1]}),
    SettingsRule("MC37", "refused", ("arguments",), ("tp_comm_overlap",), "overlap of tp communication needs sequence parallel",
        lambda s: not s.tp_comm_overlap or s.sequence_parallel, lambda _: {"sequence_parallel": [True]}),
    SettingsRule("MC38", "refused", ("arguments",), ("hierarchical_cp_sizes", "cp"),
        "a2a+p2p needs hierarchical sizes whose product is cp {s.cp}",
        lambda s: "a2a+p2p" not in s.cp_comm_types or (bool(s.hierarchical_cp_sizes) and s.hierarchical_size == s.cp)),
    SettingsRule("MC38-list", "refused", ("config", "build"), ("cp_comm_types",),
        "a list of context parallel kinds has one for each of the {s.num_layers} layers",
        lambda s: len(s.cp_comm_types) in (1, s.num_layers)),
    SettingsRule("MC39", "refused", ("first_step",), ("cp", "tp"),
        "a2a over cp {s.cp} needs query and key/value heads that divide by tp {s.tp} x cp", _scatter),
    SettingsRule("MC40", "refused", ("arguments",), ("hybrid_context_parallel", "pp", "max_tokens_per_rank"),
        "hybrid context parallel needs pp 1 and the most tokens of a rank",
        lambda s: not s.hybrid_context_parallel or (s.pp == 1 and s.max_tokens_per_rank is not None), lambda _: {"pp": [1]}),
    SettingsRule("MC42", "refused", ("arguments",), ("latent_attention", "kv_heads"),
        "latent attention excludes grouped-query flags", lambda s: not s.latent_attention or s.kv_heads is None),
    SettingsRule("MC43", "refused", ("config",), ("linear_key_heads", "linear_value_heads", "tp", "cp"),
        "linear attention heads divide by tp {s.tp}; this release has no context parallelism for them",
        lambda s: not _linear_heads(s) or (s.cp == 1 and all(count % s.tp == 0 for count in _linear_heads(s))),
        since=LINEAR_ATTENTION, until=LINEAR_CONTEXT_PARALLEL),
    SettingsRule("MC43", "refused", ("config",), ("linear_key_heads", "linear_value_heads", "tp", "cp"),
        "linear attention heads divide by tp {s.tp} x cp {s.cp}",
        lambda s: all(count % (s.tp * s.cp) == 0 for count in _linear_heads(s)), since=LINEAR_CONTEXT_PARALLEL),
    SettingsRule("MC51", "refused", ("build",), ("tp", "etp"),
        "tp {s.tp} does not divide the feed-forward sizes or expert tp {s.expert_tp} those of experts", _whole_heads),
    SettingsRule("MC53", "refused", ("arguments",), ("hybrid_context_parallel",),
        "hybrid context parallel does not go with FSDP, experts or latent attention",
        lambda s: not s.hybrid_context_parallel or not (s.fsdp or s.experts or s.latent_attention)),
)  # fmt: skip
