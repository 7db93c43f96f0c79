"""Every constant that is fitted, with its prior: a physical value and how far (in logarithm) it may plausibly lie from it.

At most 10 for a device kind, 5 for a software profile, 30 shared. One parameter may stand in several files (the A100's two memory
sizes run the same products; profiles that overlap do so by the same fraction).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["shared", "profile", "device", "tier"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """`targets`: names of the profiles, devices or (machine, tier)s whose `key` it is; `prior` with log-normal `width`."""

    kind: Kind
    targets: tuple[str, ...]
    key: str
    prior: float
    width: float
    low: float = 1e-9
    high: float = 1e9

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"{self.kind} {'+'.join(self.targets)} {self.key}".replace("  ", " ")


A100 = ("A100-SXM4-80", "A100-SXM4-40", "A800-SXM4-80")
H100 = ("H100-SXM5-80", "H200-SXM-141")
HOPPER = (*H100, "H100-SXM5-96")
V100 = ("V100-SXM2-32", "V100-SXM2-16")
OVERLAPPING = ("megatron-core", "nemo", "megatron-bridge")
SHARDED = ("llm-foundry", "torchtitan", "torchtitan-2024", "fms-fsdp", "internevo", "accelerate", "deepspeed")
MEGATRON_DEEPSPEED = ("megatron-deepspeed", "megatron-deepspeed-v100")
COMPILED = ("torchtitan", "torchtitan-2024", "fms-fsdp")
PROFILES = (
    "megatron-core",
    "nemo",
    "megatron-bridge",
    "megatron-lm-2021",
    "megatron-deepspeed",
    "megatron-deepspeed-v100",
    "megatron-deepspeed-blocking",
    *SHARDED,
)


def _shared() -> Iterator[Parameter]:
    yield Parameter("shared", (), "wave_exponent", 0.32, 0.3, high=1.0)
    yield Parameter("shared", (), "unfused_product_fraction", 0.69, 0.2, high=1.0)
    yield Parameter("shared", (), "misaligned_head_fraction", 0.12, 0.3, high=1.0)
    yield Parameter("shared", (), "score_bytes_factor", 1.0, 0.1)
    yield Parameter("shared", (), "launch_floor_exponent", 4.3, 0.2)
    yield Parameter("shared", (), "tensor_launch_s", 1.0e-4, 1.0)
    yield Parameter("shared", (), "narrow_head_ratio", 1.2, 0.1)
    yield Parameter("shared", (), "flash1_ratio", 0.54, 0.15, high=1.0)
    yield Parameter("shared", (), "context_attention_ratio", 1.22, 0.1)
    yield Parameter("shared", (), "internode_latency_s", 2.0e-4, 0.6)
    yield Parameter("shared", (), "gradient_step_s", 1.1e-2, 0.6)
    yield Parameter("shared", (), "peer_latency_s", 1.0e-4, 1.0)
    yield Parameter("shared", (), "loss_stream_bytes", 34.0, 0.3)
    yield Parameter("shared", (), "overlap_slowdown_fraction", 0.25, 0.4, high=1.0)
    yield Parameter("shared", (), "optimizer_efficiency", 0.7, 0.25, high=1.0)
    yield Parameter("shared", (), "fp8_cast_bytes", 6.0, 0.3)
    yield Parameter("shared", (), "broadcast_latency_s", 2.9e-3, 0.5)
    yield Parameter("profile", PROFILES, "p2p_exposed_fraction", 0.22, 0.5, high=1.0)
    yield Parameter("profile", SHARDED, "shard_overlap_fraction", 0.94, 0.1, high=1.0)
    yield Parameter("profile", OVERLAPPING, "gradient_overlap_fraction", 0.6, 0.3, high=1.0)
    yield Parameter("shared", (), "expert_launch_ratio", 6.0, 0.5)
    yield Parameter("profile", ("nemo",), "tensor_overlap_fraction", 0.55, 0.3, high=1.0)
    yield Parameter("profile", ("nemo",), "attention_kernel_ratio", 0.85, 0.15, high=1.0)


def _device(
    targets: tuple[str, ...], gemm: float, depth: float, memory: float, flash: float, up: float, out: float
) -> Iterator[Parameter]:
    yield Parameter("device", targets, "gemm_efficiency", gemm, 0.05, high=0.95)
    yield Parameter("device", targets, "attention_forward_efficiency", flash, 0.1, high=0.95)
    wide = HOPPER if targets == H100 else targets
    yield Parameter("device", wide, "gemm_half_depth", depth, 0.4)
    yield Parameter("device", wide, "memory_efficiency", memory, 0.08, high=0.95)
    yield Parameter("device", wide, "scaleup_efficiency", up, 0.1, high=1.0)
    yield Parameter("device", wide, "scaleout_efficiency", out, 0.1, high=1.0)


def _profile(targets: tuple[str, ...], floor: float, stream: float, overhead: float, step: float) -> Iterator[Parameter]:
    yield Parameter("profile", targets, "launch_floor_s_per_layer", floor, 0.3)
    yield Parameter("profile", targets, "elementwise_factor", stream, 0.3, low=1.0)
    yield Parameter("profile", targets, "kernel_overhead_s", overhead, 0.5)
    yield Parameter("profile", targets, "step_overhead_s", step, 0.5)


def parameters() -> tuple[Parameter, ...]:
    """All of them."""
    return (
        *_shared(),
        *_device(A100, 0.846, 163.0, 0.90, 0.60, 0.70, 0.90),
        *_device(H100, 0.80, 115.0, 0.90, 0.62, 0.74, 0.88),
        Parameter("device", ("H100-SXM5-96",), "gemm_efficiency", 0.65, 0.08, high=0.95),
        Parameter("device", ("H100-SXM5-96",), "attention_forward_efficiency", 0.52, 0.1, high=0.95),
        Parameter("device", HOPPER, "fp8_gemm_efficiency", 0.67, 0.03, high=0.95),
        Parameter("device", HOPPER, "flash2_ratio", 0.5, 0.1, high=1.0),
        *_device(V100, 0.85, 207.0, 0.85, 0.35, 0.80, 0.80),
        Parameter("tier", ("jean-zay-a100/opa", "jean-zay-v100/opa"), "efficiency", 0.25, 0.4, high=1.0),
        *_profile(("megatron-lm-2021",), 0.5e-3, 1.5, 5.3e-6, 7e-3),
        *_profile(MEGATRON_DEEPSPEED, 0.8e-3, 1.5, 5.3e-6, 7e-3),
        *_profile(("megatron-deepspeed-blocking",), 0.83e-3, 2.0, 4e-5, 8e-3),
        *_profile(("llm-foundry", "accelerate"), 0.4e-3, 2.0, 8e-6, 7e-3),
        *_profile(("internevo",), 0.44e-3, 1.3, 8e-6, 8e-3),
        Parameter("profile", ("torchtitan", "torchtitan-2024"), "tensor_overlap_fraction", 0.25, 0.5, high=1.0),
        *_profile(COMPILED, 0.25e-3, 1.4, 7e-6, 7e-3),
        *_profile(OVERLAPPING, 0.26e-3, 2.0, 8e-6, 8e-3),
    )
