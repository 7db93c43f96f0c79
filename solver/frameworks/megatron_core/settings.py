"""What a launch of Megatron-LM sets, as far as rules speak about it: its flags by meaning, with its own defaults.

None stands for an unset flag. A rule over settings sees what a layout of ours cannot say (how an uneven split is written, which
features are switched on), so every export and every launch that is read is asked about both kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from solver.frameworks.megatron_core.layout_string import item_count, stage_count
from solver.frameworks.megatron_core.versions import within
from solver.frameworks.rules import Check, Severity
from solver.plan import Violation


@dataclass(frozen=True)
class Settings:
    """Sizes in layers, heads, tokens, sequences; tuples for flags that take lists."""

    world_size: int
    num_layers: int
    hidden_size: int
    heads: int
    seq_length: int
    micro_batch_size: int
    global_batch_size: int
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int | None = None
    weight_shards: int = 1
    rank_order_ends_in_pp: bool = True
    kv_heads: int | None = None
    kv_channels: int | None = None
    ffn_hidden_size: int | None = None
    max_positions: int | None = None
    positions: Literal["learned_absolute", "rope", "mrope", "yarn", "relative", "none"] = "rope"
    untied_embeddings: bool = True
    linear_bias: bool = False
    latent_attention: bool = False
    linear_key_heads: int | None = None
    linear_value_heads: int | None = None
    hyper_connections: bool = False
    mtp_layers: int = 0
    hybrid_pattern: str | None = None
    experts: int | None = None
    moe_ffn_hidden_size: int | None = None
    shared_expert_size: int | None = None
    router_groups: int | None = None
    grouped_gemm: bool = False
    dispatcher: Literal["allgather", "alltoall", "flex"] = "alltoall"
    shared_expert_overlap: bool = False
    expert_comm_overlap: bool = False
    sequence_parallel: bool = False
    tp_comm_overlap: bool = False
    cp_comm_types: tuple[str, ...] = ("p2p",)
    hierarchical_cp_sizes: tuple[int, ...] = ()
    hybrid_context_parallel: bool = False
    max_tokens_per_rank: int | None = None
    vpp: int | None = None
    layers_per_virtual_stage: int | None = None
    virtual_group_size: int | None = None
    overlap_p2p: bool = True
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    account_for_embedding: bool = False
    account_for_loss: bool = False
    layout: str | None = None
    defer_embedding_gradient: bool = False
    eval_micro_batch_size: int | None = None
    eval_global_batch_size: int | None = None
    rampup: tuple[int, int, int] | None = None
    recompute: Literal["full", "selective"] | None = None
    recompute_method: str | None = None
    recompute_layers: int | None = None
    recompute_modules: tuple[str, ...] = ("core_attn",)
    distribute_saved: bool = False
    offloaded_layers: int | None = None
    fine_grained_offload: bool = False
    offload_modules: tuple[str, ...] = ()
    transformer_engine: bool = True
    optimizer: str = "adam"
    distributed_optimizer: bool = False
    optimizer_instances: int = 1
    precision_aware_optimizer: bool = False
    optimizer_offload: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    fsdp: Literal["torch", "megatron"] | None = None
    checkpoint_format: str = "torch_dist"
    gradient_fusion: bool = True
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    fp8_recipe: str | None = None
    pipeline_dtype_set: bool = True
    blackwell: bool = False
    device_max_connections: int | None = None

    @property
    def model_size(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.pp * self.cp * self.weight_shards

    @property
    def dp(self) -> int:
        """Data parallel size, rounded down where MC01 is broken."""
        return max(1, self.world_size // self.model_size)

    @property
    def expert_tp(self) -> int:
        """MC04: an unset expert tensor parallel size is the tensor parallel size."""
        return self.tp if self.etp is None else self.etp

    @property
    def virtual(self) -> int:
        """Virtual stages a rank, by whichever flag says so."""
        if self.layout is not None:
            return max(1, stage_count(self.layout) // self.pp)
        if self.layers_per_virtual_stage:
            return max(1, self.num_layers // self.pp // self.layers_per_virtual_stage)
        return self.vpp or 1

    @property
    def mtp_in_layout(self) -> int:
        """Multi-token prediction layers that the layout string has."""
        return item_count(self.layout or "", "m")

    @property
    def micro_batches(self) -> int:
        """Micro-batches a replica and step, rounded down where MC09 is broken."""
        return self.global_batch_size // (self.micro_batch_size * self.dp)

    @property
    def uneven_flags(self) -> bool:
        """Whether the first or the last stage is given its own number of layers."""
        return self.first_stage_layers is not None or self.last_stage_layers is not None

    @property
    def account_flags(self) -> int:
        """How many of embedding and loss count as a layer."""
        return int(self.account_for_embedding) + int(self.account_for_loss)

    @property
    def hierarchical_size(self) -> int:
        """Product of the hierarchical context parallel sizes."""
        return prod(self.hierarchical_cp_sizes)


@dataclass(frozen=True)
class SettingsRule:
    """`ok` is true where the rule holds; `fields` are the settings at fault, `nearest` offers values that are legal."""

    id: str
    severity: Severity
    fires: tuple[Check, ...]
    fields: tuple[str, ...]
    text: str
    ok: Callable[[Settings], bool]
    nearest: Callable[[Settings], dict[str, Any]] | None = None
    since: str | None = None
    until: str | None = None

    def violation(self, settings: Settings) -> Violation:
        """The violation of settings that break the rule."""
        values = {name: _plain(getattr(settings, name)) for name in self.fields}
        message = self.text.format(s=settings)
        nearest = self.nearest(settings) if self.nearest else {}
        return Violation(rule=self.id, severity=self.severity, message=message, values=values, nearest=nearest, fires=self.fires)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def broken_rules(rules: tuple[SettingsRule, ...], settings: Settings, release: str) -> list[Violation]:
    """The rules of a release that settings break, in order."""
    return [rule.violation(settings) for rule in rules if within(release, rule.since, rule.until) and not rule.ok(settings)]
