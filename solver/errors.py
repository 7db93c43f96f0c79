"""Typed errors of the solver: every refusal names the field, what was wrong and what is allowed.

Pointers are JSON pointers (RFC 6901) into the document the user sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: The closed list of codes a FieldError may carry.
FIELD_CODES = (
    "unknown_field",
    "missing",
    "wrong_type",
    "out_of_range",
    "not_supported",
    "unknown_name",
    "ambiguous_name",
    "conflict",
    "duplicate_key",
    "too_large",
    "invalid",
)


@dataclass(frozen=True)
class FieldError:
    """One thing wrong with one field of the user's document."""

    pointer: str
    code: str
    message: str
    allowed: tuple[object, ...] | None = None

    def __post_init__(self) -> None:
        assert self.code in FIELD_CODES, self.code

    def as_dict(self) -> dict[str, Any]:
        """The member of `errors` in a problem document."""
        allowed = None if self.allowed is None else list(self.allowed)
        return {"pointer": self.pointer, "code": self.code, "message": self.message, "allowed": allowed}


class SolverError(Exception):
    """Root of everything the solver raises for its callers."""

    code = "solver_error"


class InvalidProblem(SolverError):
    """The document is not a problem the solver can take; `errors` lists every field at fault."""

    code = "invalid_problem"

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors: tuple[FieldError, ...] = tuple(errors)
        assert self.errors, "InvalidProblem needs at least one error"
        super().__init__("; ".join(f"{e.pointer or '/'}: {e.message}" for e in self.errors))

    def __reduce__(self) -> tuple[type[InvalidProblem], tuple[tuple[FieldError, ...]]]:
        return (type(self), (self.errors,))


class IllegalLayout(SolverError):
    """The framework would refuse or silently change the layout; `violations` are those of solver.plan."""

    code = "illegal_layout"

    def __init__(self, violations: Iterable[Any]) -> None:
        self.violations: tuple[Any, ...] = tuple(violations)
        super().__init__("; ".join(str(getattr(v, "message", v)) for v in self.violations) or "illegal layout")

    def __reduce__(self) -> tuple[type[IllegalLayout], tuple[tuple[Any, ...]]]:
        return (type(self), (self.violations,))


class NotExpressible(SolverError):
    """The plan cannot be written in the framework asked for; `fields` name what cannot be expressed."""

    code = "not_expressible"

    def __init__(self, fields: Iterable[FieldError]) -> None:
        self.fields: tuple[FieldError, ...] = tuple(fields)
        super().__init__("; ".join(f"{f.pointer or '/'}: {f.message}" for f in self.fields) or "not expressible")

    def __reduce__(self) -> tuple[type[NotExpressible], tuple[tuple[FieldError, ...]]]:
        return (type(self), (self.fields,))


class CertificationFailed(SolverError):
    """A plan did not pass its independent re-check; it must not leave the solver."""

    code = "certification_failed"

    def __init__(self, findings: Iterable[str]) -> None:
        self.findings: tuple[str, ...] = tuple(findings)
        super().__init__("; ".join(self.findings) or "certification failed")

    def __reduce__(self) -> tuple[type[CertificationFailed], tuple[tuple[str, ...]]]:
        return (type(self), (self.findings,))
