"""Typed errors: they say everything in one line, and cross process boundaries."""

from __future__ import annotations

import pickle

import pytest

from solver.errors import CertificationFailed, FieldError, IllegalLayout, InvalidProblem, NotExpressible, SolverError

FIELD = FieldError("/a/b", "out_of_range", "too big", (1, 2))


@pytest.mark.parametrize(
    ("error", "attribute"),
    [
        (InvalidProblem([FIELD]), "errors"),
        (NotExpressible([FIELD]), "fields"),
        (IllegalLayout(["pp divides nothing"]), "violations"),
        (CertificationFailed(["memory differs"]), "findings"),
    ],
)
def test_errors_survive_pickling(error: SolverError, attribute: str) -> None:
    """A search in a child process reports the same error."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert getattr(copy, attribute) == getattr(error, attribute)
    assert str(copy) == str(error)
    assert copy.code == error.code


def test_field_error_as_a_member_of_a_problem_document() -> None:
    """The shape of RFC 9457 `errors`."""
    assert FIELD.as_dict() == {"pointer": "/a/b", "code": "out_of_range", "message": "too big", "allowed": [1, 2]}
    assert "/a/b: too big" in str(InvalidProblem([FIELD]))
