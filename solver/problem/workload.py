"""The workload: lengths, batch, precision, optimizer, task, software profile and kernels.

max_sequence_length and software are 0 / empty until `complete` has filled them; a parsed problem holds no such gap.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from solver.problem.lengths import Length, SequenceLengths
from solver.problem.spec import Amount, Count, Flag, Name, Natural, ProperFraction, Quantity, Sized, Spec, later, one_of

Precision = Literal["bf16", "fp16", "fp32", "fp8"]
Batching = Literal["padded", "packed", "per_sequence"]
StateDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "none"]


class GlobalBatch(Spec):
    """Rows fed to the model (packs when packed), or real tokens; tolerance is a fraction of it."""

    sequences: Count | None = None
    tokens: Count | None = None
    tolerance: ProperFraction = 0.0

    @model_validator(mode="after")
    def _one_form(self) -> GlobalBatch:
        one_of(self, ("sequences", "tokens"), "global_batch")
        return self


class Scenarios(Spec):
    """How many batches are drawn from the length distribution, and the seed of the draw."""

    batches: Annotated[Count, Field(le=4096)] = 8
    seed: Natural = 0


class Optimizer(Spec):
    """The types decide the state bytes of a parameter; `custom` gives the bytes instead."""

    name: Literal["adamw", "adam", "sgd", "lion", "muon", "adamw_8bit", "custom"] = "adamw"
    master: StateDtype = "fp32"
    moments: StateDtype = "fp32"
    main_gradient: StateDtype = "fp32"
    state_bytes_per_parameter: Annotated[Quantity, Field(le=1024)] | None = None

    @model_validator(mode="after")
    def _custom_has_bytes(self) -> Optimizer:
        if (self.name == "custom") != (self.state_bytes_per_parameter is not None):
            raise PydanticCustomError("conflict", "state_bytes_per_parameter belongs to the optimizer custom, which needs it")
        return self


class Pretrain(Spec):
    """All weights, from scratch."""

    kind: Literal["pretrain"] = "pretrain"


class Finetune(Spec):
    """All weights, from a checkpoint."""

    kind: Literal["finetune"]


class Lora(Spec):
    """Adapters of the given rank on the named linear layers; the rest is frozen."""

    kind: Literal["lora"]
    rank: Count = 16
    target_modules: Annotated[tuple[Name, ...], Sized(1)] = ("all_linear",)


Task = Annotated[Pretrain | Finetune | Lora, Field(discriminator="kind")]


class Software(Spec):
    """A cost profile by name; `assumptions` overrides its values. Complete after parsing."""

    name: Name = later("")
    version: Name = "latest-known"
    assumptions: dict[Name, Amount] = Field(default_factory=dict)


class Kernels(Spec):
    """Which kernels run the operators that are not matrix products."""

    attention: Literal["flash", "unfused"] = "flash"
    glu: Literal["fused", "eager"] = "fused"
    norm: Literal["fused", "eager"] = "fused"
    loss: Literal["vocab_parallel", "gathered", "chunked", "fused"] = "vocab_parallel"
    cuda_graphs: Flag = False
    dropout: ProperFraction = 0.0


class Workload(Spec):
    """What one step of training is."""

    sequence_lengths: SequenceLengths
    max_sequence_length: Length = later(0)
    truncate: Flag = False
    batching: Annotated[tuple[Batching, ...], Sized(1)] = ("packed",)
    global_batch: GlobalBatch
    scenarios: Scenarios | None = None
    precision: Precision = "bf16"
    optimizer: Optimizer = Optimizer()
    task: Task = Pretrain()
    software: Software = Software()
    kernels: Kernels = Kernels()
    expert_imbalance: Annotated[Quantity, Field(ge=1)] = 1.1
    total_tokens: Count | None = None

    @model_validator(mode="after")
    def _batching_values_differ(self) -> Workload:
        if len(set(self.batching)) != len(self.batching):
            raise PydanticCustomError("conflict", "batching names a value twice")
        return self
