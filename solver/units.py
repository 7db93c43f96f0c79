"""Units. Inside the solver everything is in bytes, seconds, FLOPs and tokens; GiB appear only at the edges."""

from __future__ import annotations

from typing import Final, Literal

GIB_BYTES: Final = 1 << 30

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]

#: Bytes of one stored element.
DTYPE_BYTES: Final[dict[str, int]] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def bytes_to_gib(value_bytes: float) -> float:
    """GiB for display."""
    return value_bytes / GIB_BYTES


#: Bytes of one element of a kept optimizer state or gradient.
STATE_BYTES: Final[dict[str, int]] = {**DTYPE_BYTES, "int8": 1, "none": 0}
