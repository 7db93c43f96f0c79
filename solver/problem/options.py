"""What is asked of the search: objective, framework, constraints, limits of the search, and what runs now."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from solver.problem.spec import Count, Flag, Fraction, Name, Natural, ProperFraction, Quantity, Spec

FrameworkName = Literal[
    "any", "megatron-core", "megatron-bridge", "torchtitan", "deepspeed", "accelerate", "nanotron", "verl", "colossalai"
]
CheckpointFormat = Literal[
    "megatron_dist", "torch_dcp", "fsdp_sharded", "deepspeed_zero", "deepspeed_universal", "hf_safetensors"
]


class Objective(Spec):
    """What is made small."""

    kind: Literal["step_time", "cost", "energy", "devices", "robust"] = "step_time"


class Framework(Spec):
    """Whose rules a plan must obey."""

    name: FrameworkName = "any"
    version: Name = "latest-known"


_Degree = Annotated[Count, Field(le=262_144)]
_Offload = Fraction
_WORD_TYPES: Final[dict[str, Any]] = {
    "tp": _Degree,
    "cp": _Degree,
    "dp": _Degree,
    "pp": _Degree,
    "ep": _Degree,
    "etp": _Degree,
    "vpp": _Degree,
    "mbs": _Degree,
    "gbs": Count,
    "zero": Annotated[Natural, Field(le=3)],
    "recompute": Literal["none", "selective", "full"],
    "sequence_parallel": Flag,
    "schedule": Literal[
        "gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_h2", "zero_bubble_v", "dualpipe", "dualpipe_v"
    ],
    "groups": tuple[Name, ...],
    "cp_kind": Literal["ring", "all_to_all", "all_gather", "hierarchical"],
    "offload_optimizer": _Offload,
    "offload_activations": _Offload,
    "offload_parameters": _Offload,
}
_WORDS: Final = {word: TypeAdapter(kind) for word, kind in _WORD_TYPES.items()}

#: The words of a uniform layout that constraints may bind.
CONSTRAINT_WORDS: Final = tuple(_WORD_TYPES)


class WordError(Exception):
    """A constraint word that is unknown or whose value is not allowed."""

    def __init__(self, code: str, message: str, allowed: tuple[object, ...] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.allowed = code, message, allowed


def word_value(word: str, value: Any) -> Any:
    """The value of a constraint word in its own type; raises WordError."""
    if word not in _WORDS:
        raise WordError("unknown_field", f"{word!r} is not a word of a uniform layout", CONSTRAINT_WORDS)
    try:
        return _WORDS[word].validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        kind = _WORD_TYPES[word]
        if first["type"] == "literal_error":
            code = "unknown_name" if isinstance(value, str) else "wrong_type"
            raise WordError(code, first["msg"], get_args(kind)) from None
        code = "wrong_type" if first["type"] == "wrong_type" else "out_of_range"
        raise WordError(code, first["msg"]) from None


class Constraints(Spec):
    """Values fixed or allowed for the words of a uniform layout (binding every stage), and limits of the plan."""

    fixed: dict[Name, Any] = Field(default_factory=dict)
    allowed: dict[Name, tuple[Any, ...]] = Field(default_factory=dict)
    max_devices: Count | None = None
    max_step_time_s: Quantity | None = None
    max_price_per_hour: Quantity | None = None
    memory: Literal["safe", "fits"] = "safe"


class Search(Spec):
    """Limits of the search. work_limit counts closed cells; target_gap 0 asks for the optimum."""

    target_gap: ProperFraction = 0.0
    alternatives: Annotated[Natural, Field(le=100)] = 5
    reproducible: Flag = True
    work_limit: Count | None = None
    time_limit_s: Quantity | None = 60.0
    proof: Flag = False
    force: Literal["bounds"] | None = None


def _as_plan_id(value: Any) -> Any:
    if isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef"):
        return value
    raise PydanticCustomError("invalid", "a plan id is 64 lower-case hexadecimal digits")


class Running(Spec):
    """What runs now, for re-planning (parsed, not yet honoured)."""

    plan: Annotated[str, BeforeValidator(_as_plan_id)]
    lost_nodes: dict[Name, tuple[Natural, ...]] = Field(default_factory=dict)
    checkpoint_format: CheckpointFormat | None = None


__all__ = [
    "CONSTRAINT_WORDS",
    "Constraints",
    "Framework",
    "Objective",
    "Running",
    "Search",
    "WordError",
    "word_value",
]
