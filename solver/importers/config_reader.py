"""Reads typed fields from a raw config, collecting what is wrong instead of stopping at the first.

A reader notes which fields were read, and which were absent so that the default of the model class stands for them: such a
default is part of the answer and is told in one warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from solver.errors import FieldError, InvalidProblem

LARGEST: Final = 2**24
"""No size of a real model is larger; what is larger is a mistake."""


def pointer_of(keys: Iterable[str]) -> str:
    """The JSON pointer (RFC 6901) of nested keys."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def short(value: Any) -> str:
    """A value as text of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class ConfigReader:
    """A raw config (or the part of one under the keys `at`), its class defaults, and everything found wrong with it."""

    def __init__(self, config: Mapping[str, Any], at: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.at = at
        self.defaults: Mapping[str, Any] = defaults or {}
        self.warnings: list[str] = []
        self.read: set[str] = set()
        self._assumed: dict[str, str] = {}
        self._errors: list[FieldError] = []

    # ------------------------------------------------------------------------------------------------------------- errors
    def refuse(self, key: str, code: str, message: str, allowed: Iterable[object] | None = None) -> None:
        """Note that a field cannot be taken as it is."""
        pointer = pointer_of((*self.at, key) if key else self.at)
        self._errors.append(FieldError(pointer, code, message, None if allowed is None else tuple(allowed)))

    def conflict(self, key: str, message: str) -> None:
        """Note that sizes disagree, which means something only while all fields read so far are sound."""
        if not self._errors:
            self.refuse(key, "conflict", message)

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """All that was noted, once each."""
        return tuple(dict.fromkeys(self._errors))

    def raise_if_any(self) -> None:
        """Raise InvalidProblem with all that was noted."""
        if self._errors:
            raise InvalidProblem(self.errors)

    # ----------------------------------------------------------------------------------------------------------- defaults
    def assume(self, key: str, value: Any, *, instead: bool = False) -> None:
        """Note that `key` is not in the config, or null, and what was taken: the first that says so, unless `instead`."""
        taken = value if isinstance(value, str) else str(value).lower()
        if instead:
            self._assumed[key] = taken
        self._assumed.setdefault(key, taken)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was taken for absent fields, as `key = value`."""
        return tuple(f"{key} = {value}" for key, value in sorted(self._assumed.items()))

    # -------------------------------------------------------------------------------------------------------------- access
    def has(self, key: str) -> bool:
        """The field is there, though it may be null."""
        return key in self.config

    def given(self, key: str) -> bool:
        """The field is there and not null."""
        return self.config.get(key) is not None

    def value(self, key: str) -> Any:
        """The raw value; null when absent."""
        self.read.add(key)
        return self.config.get(key)

    def inner(self, key: str) -> ConfigReader:
        """The object under a key, read with the same list of findings; an empty one when it is not an object."""
        value = self.value(key)
        if not isinstance(value, Mapping):
            self.refuse(key, "missing" if value is None else "wrong_type", f"{key} must be an object")
            value = {}
        reader = ConfigReader(value, (*self.at, key))
        reader.warnings, reader._errors, reader._assumed = self.warnings, self._errors, self._assumed
        return reader

    # -------------------------------------------------------------------------------------------------------------- numbers
    def size(self, key: str, *, largest: int = LARGEST) -> int:
        """A whole number of at least 1 that must be there. 1 stands in for a refused one."""
        return self._whole(key, 1, largest)

    def number_of(self, key: str) -> int:
        """A whole number of at least 0; 0 when absent or null."""
        self.read.add(key)
        if self.given(key):
            return self._whole(key, 0, LARGEST)
        if self.has(key):
            self.assume(key, 0)
        return 0

    def _whole(self, key: str, smallest: int, largest: int) -> int:
        value = self.value(key)
        if value is None:
            self.refuse(key, "missing", f"{key} is needed")
        elif not _is_whole(value):
            self.refuse(key, "wrong_type", f"{key} must be an integer, not {short(value)}")
        elif not smallest <= value <= largest:
            self.refuse(key, "too_large" if value > largest else "out_of_range", f"{key} must be {smallest} ... {largest}")
        else:
            return int(value)
        return max(1, smallest)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; when absent its class default, else `default`, which is noted. Null means the default too."""
        value = self.value(key)
        if value is None:
            taken = bool(self.defaults.get(key, default))
            self.assume(key, taken)
            return taken
        if not isinstance(value, bool):
            self.refuse(key, "wrong_type", f"{key} must be true or false, not {short(value)}")
            return default
        return value

    def text(self, key: str) -> str | None:
        """A string, or nothing when absent or null."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        self.refuse(key, "wrong_type", f"{key} must be a string, not {short(value)}")
        return None

    # ---------------------------------------------------------------------------------------------------------------- lists
    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers; empty when absent or null."""
        value = self.value(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(_is_whole(item) for item in value):
            self.refuse(key, "wrong_type", f"{key} must be a list of whole numbers")
            return ()
        return tuple(int(item) for item in value)

    def words(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when absent or null."""
        value = self.value(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(key, "wrong_type", f"{key} must be a list of strings")
            return ()
        return tuple(value)


def _is_whole(value: Any) -> bool:
    """An integer, or a float without a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or (math.isfinite(value) and value.is_integer())
