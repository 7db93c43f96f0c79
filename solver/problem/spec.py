"""The base class and the scalar types of the problem: counts are integers, quantities are finite floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

#: Largest integer that a JSON number (RFC 8785, IEEE double) carries exactly.
MAX_INTEGER: Final = 2**53 - 1
#: Bounds of quantities.
SMALLEST: Final = 1e-30
LARGEST: Final = 1e30


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


@dataclass(frozen=True)
class Sized:
    """Bounds of the number of members of a list or object, checked before the members, so that one fault is one error."""

    smallest: int = 0
    largest: int = MAX_INTEGER

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = handler(source)
        kinds = (dict,) if inner["type"] == "dict" else (list, tuple)
        return core_schema.no_info_before_validator_function(lambda value: self._check(value, kinds), inner)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler(schema)
        kind = "Properties" if described.get("type") == "object" else "Items"
        if self.smallest:
            described["min" + kind] = self.smallest
        if self.largest != MAX_INTEGER:
            described["max" + kind] = self.largest
        return described

    def _check(self, value: Any, kinds: Any) -> Any:
        size = len(value) if isinstance(value, kinds) else self.smallest
        if size < self.smallest:
            raise PydanticCustomError("out_of_range", "at least {n} needed", {"n": self.smallest})
        if size > self.largest:
            raise PydanticCustomError("too_large", "at most {n} taken", {"n": self.largest})
        return value


#: At least one.
Count = Annotated[int, BeforeValidator(_as_count), Field(ge=1, le=MAX_INTEGER)]
#: Zero or more.
Natural = Annotated[int, BeforeValidator(_as_count), Field(ge=0, le=MAX_INTEGER)]
#: Above zero, in the unit its name ends in; within bounds that keep every product and quotient finite.
Quantity = Annotated[float, BeforeValidator(_as_quantity), Field(ge=SMALLEST, le=LARGEST)]
#: Zero or more, in the unit its name ends in.
Amount = Annotated[float, BeforeValidator(_as_quantity), Field(ge=0, le=LARGEST)]
#: 0 ... 1, both included.
Fraction = Annotated[float, BeforeValidator(_as_quantity), Field(ge=0, le=1)]
#: 0 ... 1, one excluded.
ProperFraction = Annotated[float, BeforeValidator(_as_quantity), Field(ge=0, lt=1)]
Flag = Annotated[bool, BeforeValidator(_as_flag)]
#: A name: 1 to 200 characters.
Name = Annotated[str, BeforeValidator(_as_text), Field(min_length=1, max_length=200)]


def later(empty: Any) -> Any:
    """The default of a field that `complete` fills: `empty` until then, and no default in the schema shown to users."""
    return Field(default=empty, json_schema_extra=_without_default)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


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
