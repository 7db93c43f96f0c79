"""Digests: SHA-256, lower-case hexadecimal, of the RFC 8785 JSON of the normal form and the versions."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import rfc8785

from solver.problem.normal import normal_form
from solver.problem.problem import Problem
from solver.versions import versions

#: The fields of `search` that change what an answer holds, not only how long is searched.
_ANSWER_FIELDS: Final = ("alternatives", "proof")


def digest(document: Any) -> str:
    """SHA-256 of the RFC 8785 JSON of a document."""
    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()


def problem_digest(problem: Problem) -> str:
    """The same for all problems with the same proven answers: without `search`, but with alternatives and proof."""
    form = normal_form(problem)
    form["search"] = {key: form["search"][key] for key in _ANSWER_FIELDS}
    return digest({"problem": form, "versions": versions()})


def request_digest(problem: Problem) -> str:
    """The same for all problems with the same answers: with all of `search`."""
    return digest({"problem": normal_form(problem), "versions": versions()})
