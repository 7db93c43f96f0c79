"""The flags of a launch script read back as the settings that rules speak about, so that no export breaks a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from solver.frameworks.megatron_core.settings import Settings

_VALUES: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "num-layers": ("num_layers", int),
    "hidden-size": ("hidden_size", int),
    "ffn-hidden-size": ("ffn_hidden_size", int),
    "num-attention-heads": ("heads", int),
    "num-query-groups": ("kv_heads", int),
    "kv-channels": ("kv_channels", int),
    "seq-length": ("seq_length", int),
    "max-position-embeddings": ("max_positions", int),
    "position-embedding-type": ("positions", str),
    "micro-batch-size": ("micro_batch_size", int),
    "global-batch-size": ("global_batch_size", int),
    "tensor-model-parallel-size": ("tp", int),
    "context-parallel-size": ("cp", int),
    "pipeline-model-parallel-size": ("pp", int),
    "expert-model-parallel-size": ("ep", int),
    "expert-tensor-parallel-size": ("etp", int),
    "num-virtual-stages-per-pipeline-rank": ("vpp", int),
    "num-layers-per-virtual-pipeline-stage": ("layers_per_virtual_stage", int),
    "microbatch-group-size-per-virtual-pipeline-stage": ("virtual_group_size", int),
    "decoder-first-pipeline-num-layers": ("first_stage_layers", int),
    "decoder-last-pipeline-num-layers": ("last_stage_layers", int),
    "pipeline-model-parallel-layout": ("layout", str),
    "mtp-num-layers": ("mtp_layers", int),
    "num-experts": ("experts", int),
    "moe-ffn-hidden-size": ("moe_ffn_hidden_size", int),
    "moe-shared-expert-intermediate-size": ("shared_expert_size", int),
    "moe-router-num-groups": ("router_groups", int),
    "moe-token-dispatcher-type": ("dispatcher", str),
    "recompute-granularity": ("recompute", str),
    "recompute-method": ("recompute_method", str),
    "recompute-num-layers": ("recompute_layers", int),
    "num-distributed-optimizer-instances": ("optimizer_instances", int),
    "optimizer": ("optimizer", str),
}
_LISTS: Final[Mapping[str, str]] = {"recompute-modules": "recompute_modules", "cp-comm-type": "cp_comm_types"}
_SWITCHES: Final[Mapping[str, tuple[str, Any]]] = {
    "multi-latent-attention": ("latent_attention", True),
    "untie-embeddings-and-output-weights": ("untied_embeddings", True),
    "disable-bias-linear": ("linear_bias", False),
    "moe-grouped-gemm": ("grouped_gemm", True),
    "sequence-parallel": ("sequence_parallel", True),
    "use-distributed-optimizer": ("distributed_optimizer", True),
    "overlap-grad-reduce": ("overlap_grad_reduce", True),
    "overlap-param-gather": ("overlap_param_gather", True),
    "use-precision-aware-optimizer": ("precision_aware_optimizer", True),
    "optimizer-cpu-offload": ("optimizer_offload", True),
    "account-for-embedding-in-pipeline-split": ("account_for_embedding", True),
    "account-for-loss-in-pipeline-split": ("account_for_loss", True),
    "bf16": ("precision", "bf16"),
    "fp16": ("precision", "fp16"),
}
#: Where Megatron's own default, with the flag unset, differs from that of `Settings`.
_UNSET: Final[Mapping[str, Any]] = {
    "untied_embeddings": False,
    "linear_bias": True,
    "precision": "fp32",
    "dispatcher": "allgather",
}
_NAMES: Final = frozenset(field.name for field in fields(Settings))


def read_flags(lines: Iterable[str]) -> dict[str, str]:
    """Flags by name, without dashes, each with its value; quotes of the shell are taken off."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.removeprefix("--").partition(" ")
        found[name] = value.strip("'\"")
    return found


def settings_of(flags: Mapping[str, str], world_size: int, environment: Mapping[str, str], *, blackwell: bool) -> Settings:
    """What the flags set; flags that no rule speaks about are passed over."""
    values: dict[str, Any] = dict(_UNSET)
    for name, value in flags.items():
        if name in _VALUES:
            field, convert = _VALUES[name]
            values[field] = convert(value)
        elif name in _LISTS:
            values[_LISTS[name]] = tuple(value.split())
        elif name in _SWITCHES:
            field, meant = _SWITCHES[name]
            values[field] = meant
    connections = environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    values["device_max_connections"] = None if connections is None else int(connections)
    assert values.keys() <= _NAMES
    return Settings(world_size=world_size, blackwell=blackwell, **values)
