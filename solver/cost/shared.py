"""Constants that belong to no device and no software profile (`catalog/shared.toml`): one value for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from solver import catalog


@dataclass(frozen=True, slots=True)
class SharedConstants:
    """Each with its source in the file. Names end in their unit; fractions and ratios have none."""

    wave_exponent: float
    unfused_product_fraction: float
    misaligned_head_fraction: float
    score_bytes_factor: float
    backward_stream_ratio: float
    launch_floor_exponent: float
    backward_launch_ratio: float
    tensor_launch_s: float
    narrow_head_ratio: float
    flash1_ratio: float
    attention_backward_flops_ratio: float
    context_attention_ratio: float
    context_exposed_fraction: float
    collective_latency_base_s: float
    collective_latency_per_rank_s: float
    internode_latency_s: float
    inner_tier_share: float
    gradient_step_s: float
    peer_latency_s: float
    loss_stream_bytes: float
    overlap_slowdown_fraction: float
    optimizer_efficiency: float
    graph_launch_fraction: float
    expert_launch_ratio: float
    fp8_cast_bytes: float
    broadcast_latency_s: float
    scan_product_fraction: float


@cache
def shared_constants() -> SharedConstants:
    """The shipped values."""
    return SharedConstants(**{name: float(entry["value"]) for name, entry in catalog.shared().items()})
