"""The base class and the scalar types of the problem: counts are integers, quantities are finite floats."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

#: Largest integer that a JSON number (RFC 8785, IEEE double) carries exactly.
MAX_INTEGER: Final = 2**53 - 1


class Spec(BaseModel):
    """A frozen part of the problem; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)


def _as_count(value: Any) -> int:
    """An integer; integral floats are accepted, strings and booleans are not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    raise PydanticCustomError("wrong_type", "an integer is needed")


def _as_quantity(value: Any) -> float:
    """A finite float; strings and booleans are not accepted."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("wrong_type", "a number is needed")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise PydanticCustomError("out_of_range", "a finite number is needed")
    return result


def _as_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise PydanticCustomError("wrong_type", "true or false is needed")


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise PydanticCustomError("wrong_type", "a string is needed")


#: At least one.
Count = Annotated[int, BeforeValidator(_as_count), Field(ge=1, le=MAX_INTEGER)]
#: Zero or more.
Natural = Annotated[int, BeforeValidator(_as_count), Field(ge=0, le=MAX_INTEGER)]
#: Above zero, in the unit its name ends in.
Quantity = Annotated[float, BeforeValidator(_as_quantity), Field(gt=0)]
#: Zero or more, in the unit its name ends in.
Amount = Annotated[float, BeforeValidator(_as_quantity), Field(ge=0)]
#: 0 ... 1, both included.
Fraction = Annotated[float, BeforeValidator(_as_quantity), Field(ge=0, le=1)]
#: 0 ... 1, one excluded.
ProperFraction = Annotated[float, BeforeValidator(_as_quantity), Field(ge=0, lt=1)]
Flag = Annotated[bool, BeforeValidator(_as_flag)]
#: A name: 1 to 200 characters.
Name = Annotated[str, BeforeValidator(_as_text), Field(min_length=1, max_length=200)]


def one_of(spec: BaseModel, names: tuple[str, ...], what: str) -> None:
    """Raise unless exactly one of the named fields is given (not null)."""
    given = [name for name in names if getattr(spec, name) is not None]
    if len(given) == 1:
        return
    allowed = ", ".join(names)
    if not given:
        raise PydanticCustomError("missing", "{what} needs exactly one of: {allowed}", {"what": what, "allowed": allowed})
    raise PydanticCustomError(
        "conflict",
        "{what} takes exactly one of: {allowed}; given: {given}",
        {"what": what, "allowed": allowed, "given": ", ".join(given)},
    )
