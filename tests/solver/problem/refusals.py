"""Helpers: what is wrong with a document that must be refused."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import FieldError, InvalidProblem
from solver.problem import parse_problem


def refused(document: Any) -> tuple[FieldError, ...]:
    """The errors of a document that must be refused."""
    with pytest.raises(InvalidProblem) as caught:
        parse_problem(document)
    return caught.value.errors


def findings(document: Any) -> set[tuple[str, str]]:
    """(pointer, code) of each error."""
    return {(error.pointer, error.code) for error in refused(document)}
