"""What a row's framework, sharding and precision columns settle: software profile, kernels, types of the states.

One entry per framework family, first match wins (a word of the `framework` column, then of `sharding`). Facts about defaults of a
framework carry their source; a machine may run its own variant of a profile (`software` in catalog/clusters).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from solver.catalog import UnknownName, find_profile
from solver.validate.machines import Machine
from solver.validate.rows import Row

FALLBACK_PROFILE = "megatron-core"
EXPERT_PROFILE = "megatron-bridge"
"""published runs of experts on Megatron-Core use the dispatcher of its performance recipes (DeepEP, HybridEP)"""
LATER_DEVICES = ("H100", "H200", "H800", "GB200", "GB300", "B200", "B300")
"""devices that Megatron-LM supports since it became Megatron-Core with Transformer Engine"""
ROWWISE_PRODUCT_RATIO = 0.45
"""rate of 8-bit products with a scale a row over those with one a tensor (torchtitan, issue 1207)"""


@dataclass(frozen=True, slots=True)
class FrameworkUse:
    """`word` begins the framework column; `kernels` and `optimizer` are what the problem document gets."""

    word: str
    profile: str
    kernels: dict[str, Any] = field(default_factory=dict)
    dropout: float = 0.0
    half_gradients: bool = False
    """main gradients in the 16-bit type of the run"""
    releases: tuple[tuple[str, str], ...] = ()
    """(word of source_ref that names a release, profile of that release)"""
    zero_levels: tuple[int, ...] = (0, 1)
    """ZeRO stages of a row that states none"""
    interleaves: bool = False
    embedding_counts_as_layer: bool = False
    """chunks are cut with embedding and head counted as layers where the layers alone do not divide (DeepSpeed
    `type:transformer|embedding`, Megatron-Core `account-for-embedding-in-pipeline-split`)"""


USES = (
    FrameworkUse(
        "Megatron-DeepSpeed",
        "megatron-deepspeed",
        dropout=0.1,
        half_gradients=True,
        zero_levels=(0, 1),
        embedding_counts_as_layer=True,
    ),
    FrameworkUse("DeepSpeed", "deepspeed", dropout=0.1, half_gradients=True, zero_levels=(1, 2, 3)),
    FrameworkUse("Megatron-LM", "megatron-lm-2021", dropout=0.1, interleaves=True),
    FrameworkUse("Megatron-Bridge", "megatron-bridge", zero_levels=(1,), interleaves=True, embedding_counts_as_layer=True),
    FrameworkUse("NeMo", "nemo", zero_levels=(1,), interleaves=True),
    FrameworkUse("Megatron-Core", "megatron-core", zero_levels=(1,), interleaves=True, embedding_counts_as_layer=True),
    FrameworkUse("Primus", "megatron-core", zero_levels=(1,), interleaves=True, embedding_counts_as_layer=True),
    FrameworkUse("llm-foundry", "llm-foundry", zero_levels=(3,)),
    FrameworkUse("InternEvo", "internevo", kernels={"norm": "eager", "glu": "eager"}, half_gradients=True, zero_levels=(1,)),
    FrameworkUse("torchtitan", "torchtitan", releases=(("_202412_", "torchtitan-2024"),), zero_levels=(3,), interleaves=True),
    FrameworkUse("PyTorch FSDP", "fms-fsdp", half_gradients=True, zero_levels=(3,)),
    FrameworkUse("Accelerate", "accelerate", zero_levels=(0, 2, 3)),
)
FULLY_SHARDED = "PyTorch FSDP"
"""the entry of frameworks that are not listed and shard with FSDP"""


def framework_use(row: Row) -> FrameworkUse | None:
    """The entry whose word begins a row's framework, else is in it, else the one of FSDP; None when it is not known."""
    text = (row.framework or "").lower()
    begins = [use for use in USES if text.startswith(use.word.lower())]
    holds = [use for use in USES if use.word.lower() in text]
    sharded = [use for use in USES if use.word == FULLY_SHARDED and "fsdp" in f"{text} {row.sharding or ''}".lower()]
    return next(iter(begins + holds + sharded), None)


def profile_name(row: Row, use: FrameworkUse | None, machine: Machine, notes: list[str]) -> str:
    """The software profile of a row: that of its release, the machine's variant, the family's, or the one of that name."""
    names = [row.framework or ""]
    if use is not None:
        names = [profile for word, profile in use.releases if word in (row.source_ref or "")]
        if machine.cluster is not None and use.word in machine.cluster.software:
            names.append(machine.cluster.software[use.word])
        names.append(_of_its_time(use.profile, row))
    for candidate in names:
        try:
            return find_profile(candidate).name
        except UnknownName:
            continue
    notes.append(f"no software profile for {row.framework}: {FALLBACK_PROFILE} is taken")
    return FALLBACK_PROFILE


def _of_its_time(profile: str, row: Row) -> str:
    """Megatron-LM on later devices is Megatron-Core; experts on Megatron-Core use the dispatcher of its recipes."""
    later = any(word in (row.gpu or "") for word in LATER_DEVICES) or "core" in (row.framework or "").lower()
    if profile == "megatron-lm-2021" and later:
        profile = FALLBACK_PROFILE
    return EXPERT_PROFILE if profile == FALLBACK_PROFILE and row.n_experts else profile


def kernels(row: Row, use: FrameworkUse | None) -> dict[str, Any]:
    """Attention kernel as the row says (unfused without flash), the rest as the framework has it."""
    chosen: dict[str, Any] = {"attention": "unfused" if row.flash_attn == 0 else "flash"}
    if use is not None:
        chosen = {**chosen, **use.kernels}
        if use.dropout and row.flash_attn == 0:
            chosen["dropout"] = use.dropout
    return chosen


def precision(row: Row) -> str:
    """The problem's precision: FP8 recipes are one, `bf16` wins over `fp16` only when it comes first."""
    text = (row.precision or "bf16").lower()
    if "fp8" in text:
        return "fp8"
    if text.startswith("fp32"):
        return "fp32"
    return "fp16" if text.startswith("fp16") else "bf16"


def assumptions(row: Row) -> dict[str, float]:
    """What the precision column says about kernels: scales a row are slower than one a tensor."""
    return {"fp8_product_ratio": ROWWISE_PRODUCT_RATIO} if "rowwise" in (row.precision or "").lower() else {}


def optimizer(row: Row, use: FrameworkUse | None) -> dict[str, Any]:
    """Types of the optimizer states: fp32 but for gradients that the framework keeps in 16 bits."""
    text, sharding = (row.precision or "").lower(), (row.sharding or "").lower()
    half = precision(row) if precision(row) in ("fp16", "bf16") else "bf16"
    gradient = half if use is not None and use.half_gradients else "fp32"
    if "fp32 grad" in text or "bf16 optimizer" in sharding or "mp_default" in sharding:
        gradient = "fp32"
    if "mp_pure" in sharding:
        gradient = half
    return {"name": "adamw", "main_gradient": gradient}
