"""Collects everything wrong with a document, so that one answer names all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from solver.errors import FieldError, InvalidProblem
from solver.problem.pointers import Path, pointer, user_path

#: More errors than this are counted, not listed.
MAX_ERRORS: Final = 100


class Findings:
    """Errors with their paths in the expanded document, in the order found."""

    def __init__(self) -> None:
        self._found: list[tuple[Path, FieldError]] = []

    def add(self, path: Path, code: str, message: str, allowed: Iterable[object] | None = None) -> None:
        """Note one error."""
        self.take(path, FieldError(pointer(path), code, message, None if allowed is None else tuple(allowed)))

    def take(self, path: Path, error: FieldError) -> None:
        """Note an error that was already built."""
        self._found.append((path, error))

    def raise_if_any(self, moved: Mapping[Path, Path]) -> None:
        """Raise InvalidProblem with the pointers of the user's document if anything was noted."""
        found = [replace(error, pointer=pointer(user_path(path, moved))) for path, error in self._found]
        errors = list(dict.fromkeys(found))
        if len(errors) > MAX_ERRORS:
            more = FieldError("", "invalid", f"{len(errors) - MAX_ERRORS} more errors are not listed")
            errors = [*errors[:MAX_ERRORS], more]
        if errors:
            raise InvalidProblem(errors)
