"""Reads typed fields from a raw config, collecting what is wrong instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from solver.errors import FieldError, InvalidProblem

_LARGEST: Final = 2**40


class ConfigReader:
    """A raw config and everything that was found wrong with it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.warnings: list[str] = []
        self._errors: list[FieldError] = []

    def refuse(self, key: str, code: str, message: str, allowed: Iterable[object] | None = None) -> None:
        """Note that a field cannot be taken as it is."""
        pointer = "/" + key.replace("~", "~0").replace("/", "~1") if key else ""
        self._errors.append(FieldError(pointer, code, message, None if allowed is None else tuple(allowed)))

    def conflict(self, key: str, message: str) -> None:
        """Note that sizes disagree, which means something only while all fields read so far are sound."""
        if not self._errors:
            self.refuse(key, "conflict", message)

    def raise_if_any(self) -> None:
        """Raise InvalidProblem with all that was noted."""
        if self._errors:
            raise InvalidProblem(dict.fromkeys(self._errors))

    def given(self, key: str) -> bool:
        """The field is there and not null."""
        return self.config.get(key) is not None

    def size(self, key: str, default: int | None = None, *, largest: int = _LARGEST) -> int:
        """A whole number of at least 1; without a default it must be there. 1 stands in for a refused one."""
        return self._whole(key, default, 1, largest)

    def number_of(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        return self._whole(key, default, 0, _LARGEST)

    def _whole(self, key: str, default: int | None, smallest: int, largest: int) -> int:
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            self.refuse(key, "missing", f"{key} is needed")
        elif isinstance(value, bool) or not isinstance(value, int | float) or value != value or value != int(_finite(value)):
            self.refuse(key, "wrong_type", f"{key} must be an integer")
        elif not smallest <= value <= largest:
            self.refuse(key, "too_large" if value > largest else "out_of_range", f"{key} must be {smallest} ... {largest}")
        else:
            return int(value)
        return max(1, smallest)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean, or its default when missing or null."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, "wrong_type", f"{key} must be true or false")
            return default
        return value

    def indices(self, key: str) -> frozenset[int]:
        """A list of layer numbers; empty when missing or null."""
        value = self.config.get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            self.refuse(key, "wrong_type", f"{key} must be a list of layer numbers")
            return frozenset()
        return frozenset(value)


def _finite(value: float) -> float:
    return value if abs(value) <= float(2**62) else 0.5
