"""Settings: batch, experts, recompute, offload, optimizer, FSDP."""

from __future__ import annotations

from typing import Any, Final

from solver.frameworks.megatron_core.settings import Settings, SettingsRule
from solver.frameworks.megatron_core.versions import (
    ACCOUNT_FLAGS,
    BIASED_EXPERTS,
    EARLY_SEQUENCE_PARALLEL_CHECK,
    EXPERT_OVERLAP,
    FINE_GRAINED_OFFLOAD,
    NO_BIASED_EXPERTS,
    RECOMPUTE_MODULES,
    SHARED_EXPERTS_RECOMPUTED,
)

FIRST_RECOMPUTED: Final = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe")
RECOMPUTED: Final = (*FIRST_RECOMPUTED, "shared_experts")
NEWER_RECOMPUTED: Final = (*RECOMPUTED, "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc")
OFFLOADED: Final = ("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear")
NEWER_OFFLOADED: Final = (*OFFLOADED, "fused_group_mlp", "gdp_qkv")
_WITHIN_EXPERTS: Final = ("expert_fc1", "fused_group_mlp", "moe_act")


def _batch(s: Settings) -> bool:
    """Training batch, ramp-up and evaluation batch (which defaults to the training batch) divide over the replicas."""
    unit = s.micro_batch_size * s.dp
    sizes = [s.global_batch_size, s.eval_global_batch_size or s.global_batch_size, *(s.rampup[:2] if s.rampup else ())]
    evaluated = (s.eval_micro_batch_size or s.micro_batch_size) * s.dp
    return s.global_batch_size >= unit and sizes[1] % evaluated == 0 and all(size % unit == 0 for size in (sizes[0], *sizes[2:]))


def _batch_hint(s: Settings) -> dict[str, Any]:
    unit = s.micro_batch_size * s.dp
    below = s.global_batch_size // unit * unit
    return {"global_batch_size": [value for value in (below, below + unit) if value]}


def _recompute_complete(s: Settings) -> bool:
    if s.recompute == "full":
        return s.recompute_method in ("uniform", "block") and s.recompute_layers is not None
    return s.recompute is None or s.recompute_layers is None


def _recompute_bounded(s: Settings) -> bool:
    """Megatron itself has no upper bound: more layers than a virtual stage holds would mean all of them."""
    most = -(-s.num_layers // (s.pp * s.virtual))
    return s.recompute != "full" or s.recompute_layers is None or 1 <= s.recompute_layers <= most


def _modules(s: Settings, known: tuple[str, ...]) -> bool:
    named = set(s.recompute_modules) if s.recompute == "selective" else set()
    return (
        named <= set(known)
        and ("moe_act" not in named or s.grouped_gemm)
        and ("mla_up_proj" not in named or s.latent_attention)
        and not ("shared_experts" in named and s.shared_expert_size and s.shared_expert_overlap)
        and not {"mhc", "mlp"} <= named
        and not (named & {"moe_act", "layernorm"} and s.fp8_recipe == "delayed")
    )


def _fine_grained(s: Settings, known: tuple[str, ...]) -> bool:
    if not s.fine_grained_offload:
        return True
    named = set(s.offload_modules)
    inside = "moe" in s.recompute_modules and s.recompute == "selective" and bool(named & set(_WITHIN_EXPERTS))
    return (
        s.offloaded_layers is None
        and bool(named)
        and named <= set(known)
        and ("attn_proj" not in named or "core_attn" in named)
        and s.transformer_engine
        and not inside
    )


def _torch_fsdp(s: Settings) -> bool:
    return s.fsdp != "torch" or (
        s.pp == 1
        and s.ep == 1
        and not s.distributed_optimizer
        and not s.gradient_fusion
        and s.untied_embeddings
        and s.precision != "fp16"
        and s.checkpoint_format in ("torch_dist", "torch_dcp")
        and s.device_max_connections != 1
    )


def _megatron_fsdp(s: Settings) -> bool:
    return s.fsdp != "megatron" or (
        s.optimizer in ("adam", "sgd")
        and s.checkpoint_format == "fsdp_dtensor"
        and s.device_max_connections != 1
        and not s.hybrid_context_parallel
    )


def _expert_overlap(s: Settings) -> bool:
    recomputes_experts = s.recompute == "selective" and "moe" in s.recompute_modules
    return not s.expert_comm_overlap or (
        s.ep > 1
        and s.dispatcher in ("alltoall", "flex")
        and s.recompute != "full"
        and s.recompute_method is None
        and s.recompute_layers is None
        and not recomputes_experts
        and (s.pp == 1 or s.virtual > 1)
        and not s.shared_expert_overlap
        and s.mtp_layers <= 1
        and s.precision in ("bf16", "fp16")
    )


def _experts_hint(s: Settings) -> dict[str, Any]:
    return {"ep": [value for value in range(1, (s.experts or 1) + 1) if (s.experts or 1) % value == 0]}


def _instances(s: Settings) -> bool:
    edp = s.world_size // max(1, s.expert_tp * s.ep * s.pp)
    return s.dp * s.cp % s.optimizer_instances == 0 and edp % s.optimizer_instances == 0


def _sequence_parallel(s: Settings) -> bool:
    return s.experts is None or s.tp == 1 or s.sequence_parallel


def _sequence_hint(_: Settings) -> dict[str, Any]:
    return {"sequence_parallel": [True], "tp": [1]}


_SEQUENCE: Final = ("sequence_parallel", "tp")
_NEEDS_SEQUENCE: Final = "experts at tp {s.tp} need sequence parallel"

RULES: Final = (
    SettingsRule("MC09", "refused", ("arguments", "build"), ("global_batch_size", "micro_batch_size", "world_size"),
        "a batch of {s.global_batch_size} does not divide by micro-batch {s.micro_batch_size} x dp {s.dp}, or that of ramp-up or "
        "evaluation does not", _batch, _batch_hint),
    SettingsRule("MC22", "refused", ("arguments", "build"), ("experts", "ep"),
        "ep {s.ep} does not divide {s.experts} experts", lambda s: s.experts is None or s.experts % s.ep == 0, _experts_hint),
    SettingsRule("MC22", "refused", ("config",), ("experts", "ep"), "ep {s.ep} needs experts",
        lambda s: s.experts is not None or s.ep == 1, lambda _: {"ep": [1]}),
    SettingsRule("MC23", "refused", ("config", "first_step"), _SEQUENCE, _NEEDS_SEQUENCE,
        lambda s: s.ep == 1 or _sequence_parallel(s), _sequence_hint, until=EARLY_SEQUENCE_PARALLEL_CHECK),
    SettingsRule("MC23", "refused", ("first_step",), _SEQUENCE, _NEEDS_SEQUENCE,
        lambda s: s.ep > 1 or _sequence_parallel(s), _sequence_hint, until=EARLY_SEQUENCE_PARALLEL_CHECK),
    SettingsRule("MC23", "refused", ("first_step",), _SEQUENCE, _NEEDS_SEQUENCE, _sequence_parallel, _sequence_hint,
        since=EARLY_SEQUENCE_PARALLEL_CHECK),
    SettingsRule("MC24", "refused", ("config",), ("router_groups", "experts"),
        "{s.router_groups} router groups do not divide {s.experts} experts",
        lambda s: not s.router_groups or (s.experts is not None and s.experts % s.router_groups == 0),
        since=ACCOUNT_FLAGS),
    SettingsRule("MC25", "refused", ("build",), ("linear_bias", "grouped_gemm"), "grouped products of experts have no bias yet",
        lambda s: s.experts is None or not (s.linear_bias and s.grouped_gemm), lambda _: {"grouped_gemm": [False]},
        until=NO_BIASED_EXPERTS),
    SettingsRule("MC25", "refused", ("config",), ("linear_bias", "experts"), "experts with bias came with release 0.15",
        lambda s: s.experts is None or not s.linear_bias, since=NO_BIASED_EXPERTS, until=BIASED_EXPERTS),
    SettingsRule("MC25", "refused", ("config",), ("linear_bias", "etp"), "experts with bias need etp 1, it is {s.expert_tp}",
        lambda s: s.experts is None or not s.linear_bias or s.expert_tp == 1, lambda _: {"etp": [1]}, since=BIASED_EXPERTS),
    SettingsRule("MC26", "refused", ("config",), ("recompute", "recompute_method", "recompute_layers"),
        "full recompute needs a method (uniform, block) and its layers; selective takes neither", _recompute_complete,
        lambda _: {"recompute_method": ["uniform", "block"]}),
    SettingsRule("MC26", "refused", ("arguments",), ("recompute", "recompute_method"), "selective recompute takes no method",
        lambda s: s.recompute != "selective" or s.recompute_method is None, lambda _: {"recompute_method": [None]}),
    SettingsRule("MC27", "refused", (), ("recompute_layers", "num_layers", "pp", "vpp"),
        "{s.recompute_layers} recomputed layers are not between 1 and those of a virtual stage", _recompute_bounded,
        lambda s: {"recompute_layers": [1, -(-s.num_layers // (s.pp * s.virtual))]}),
    SettingsRule("MC28", "refused", ("arguments",), ("recompute_modules",), "recompute modules came with release 0.12",
        lambda s: s.recompute_modules == ("core_attn",), until=RECOMPUTE_MODULES),
    SettingsRule("MC28", "refused", ("config",), ("recompute_modules",),
        "the modules {s.recompute_modules} cannot all be recomputed here", lambda s: _modules(s, FIRST_RECOMPUTED),
        lambda _: {"recompute_modules": list(FIRST_RECOMPUTED)}, since=RECOMPUTE_MODULES, until=SHARED_EXPERTS_RECOMPUTED),
    SettingsRule("MC28", "refused", ("config",), ("recompute_modules",),
        "the modules {s.recompute_modules} cannot all be recomputed here", lambda s: _modules(s, RECOMPUTED),
        lambda _: {"recompute_modules": list(RECOMPUTED)}, since=SHARED_EXPERTS_RECOMPUTED, until="0.20"),
    SettingsRule("MC28", "refused", ("config",), ("recompute_modules",),
        "the modules {s.recompute_modules} cannot all be recomputed here", lambda s: _modules(s, NEWER_RECOMPUTED),
        lambda _: {"recompute_modules": list(NEWER_RECOMPUTED)}, since="0.20"),
    SettingsRule("MC29", "refused", ("arguments",), ("distribute_saved", "tp", "recompute"),
        "spreading saved activations needs tp above 1 and full recompute",
        lambda s: not s.distribute_saved or (s.tp > 1 and s.recompute == "full")),
    SettingsRule("MC29", "refused", ("config",), ("distribute_saved", "sequence_parallel"),
        "spreading saved activations does not go with sequence parallel",
        lambda s: not (s.distribute_saved and s.recompute is not None and s.sequence_parallel),
        lambda _: {"sequence_parallel": [False]}),
    SettingsRule("MC30", "refused", ("config",), ("offloaded_layers", "pp", "recompute"),
        "offloading layers needs pp 1, no recompute, and fewer than the {s.num_layers} layers",
        lambda s: s.offloaded_layers is None
        or (s.pp == 1 and s.recompute is None and 0 <= s.offloaded_layers < s.num_layers)),
    SettingsRule("MC31", "refused", ("arguments",), ("fine_grained_offload",), "fine-grained offload came with release 0.16",
        lambda s: not s.fine_grained_offload, until=FINE_GRAINED_OFFLOAD),
    SettingsRule("MC31", "refused", ("config",), ("offload_modules",),
        "the modules {s.offload_modules} cannot all be offloaded here", lambda s: _fine_grained(s, OFFLOADED),
        lambda _: {"offload_modules": list(OFFLOADED)}, since=FINE_GRAINED_OFFLOAD, until="0.20"),
    SettingsRule("MC31", "refused", ("config",), ("offload_modules",),
        "the modules {s.offload_modules} cannot all be offloaded here", lambda s: _fine_grained(s, NEWER_OFFLOADED),
        lambda _: {"offload_modules": list(NEWER_OFFLOADED)}, since="0.20"),
    SettingsRule("MC32", "refused", ("arguments",), ("optimizer_offload", "precision_aware_optimizer", "optimizer"),
        "optimizer offload needs the precision-aware optimizer, which is Adam behind the distributed optimizer",
        lambda s: (not s.optimizer_offload or s.precision_aware_optimizer)
        and (not s.precision_aware_optimizer or (s.optimizer == "adam" and s.distributed_optimizer))),
    SettingsRule("MC33", "refused", ("arguments",), ("overlap_param_gather", "overlap_grad_reduce", "distributed_optimizer"),
        "overlapped gathering of parameters needs the distributed optimizer (or FSDP) and overlapped gradients",
        lambda s: not s.overlap_param_gather or ((s.distributed_optimizer or s.fsdp is not None) and s.overlap_grad_reduce)),
    SettingsRule("MC34", "refused", ("arguments",), ("fsdp",),
        "torch FSDP2 needs pp 1, ep 1, untied embeddings, no distributed optimizer, no fused gradients, no fp16, a torch_dist or "
        "torch_dcp checkpoint and CUDA_DEVICE_MAX_CONNECTIONS other than 1", _torch_fsdp),
    SettingsRule("MC35", "refused", ("arguments",), ("fsdp",),
        "Megatron FSDP needs adam or sgd, the checkpoint format fsdp_dtensor, CUDA_DEVICE_MAX_CONNECTIONS other than 1, and no "
        "hybrid context parallel", _megatron_fsdp),
    SettingsRule("MC41", "refused", ("arguments",), ("expert_comm_overlap",), "this overlap came with release 0.14",
        lambda s: not s.expert_comm_overlap, until=EXPERT_OVERLAP),
    SettingsRule("MC41", "refused", ("config",), ("expert_comm_overlap",),
        "overlap of expert communication needs ep above 1, alltoall or flex, 16 bits, vpp above 1 on a pipeline, at most one "
        "prediction layer, and no full or expert recompute", _expert_overlap, since=EXPERT_OVERLAP),
    SettingsRule("MC48", "refused", ("build",), ("dispatcher", "tp", "ep"), "the flex dispatcher needs tp x ep above 1",
        lambda s: s.dispatcher != "flex" or s.tp * s.ep > 1, until="0.20"),
    SettingsRule("MC48", "refused", ("config",), ("dispatcher", "tp", "ep"), "the flex dispatcher needs tp x ep above 1",
        lambda s: s.dispatcher != "flex" or s.tp * s.ep > 1, since="0.20"),
    SettingsRule("MC52", "refused", ("build",), ("optimizer_instances",),
        "{s.optimizer_instances} instances of the distributed optimizer do not divide the data parallel ranks", _instances),
    SettingsRule("MCX-fp16", "refused", ("arguments",), ("precision", "ep"), "expert parallelism does not go with fp16",
        lambda s: s.precision != "fp16" or s.ep == 1),
)  # fmt: skip
