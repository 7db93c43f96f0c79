"""From a document to a Problem: shape, then shorthands, then types, then support, defaults and agreement of the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from solver.problem.checks import check
from solver.problem.complete import complete
from solver.problem.findings import Findings
from solver.problem.pointers import field_errors
from solver.problem.problem import Problem
from solver.problem.shorthand import expand
from solver.problem.supported import check_parts, check_supported
from solver.problem.tree import check_tree


def parse_problem(document: Mapping[str, Any]) -> Problem:
    """The problem, complete and checked; raises InvalidProblem: all errors of shape and types, or else all errors of meaning.

    Pointers are those of `document`, before shorthands were expanded.
    """
    findings = Findings()
    if not isinstance(document, Mapping):
        findings.add((), "wrong_type", "the problem must be an object")
        findings.raise_if_any({})
    check_tree(dict(document), findings)
    findings.raise_if_any({})
    expanded, moved = expand(document)
    cluster = document.get("cluster")
    if isinstance(cluster, Mapping) and "node_matrix" in cluster:
        findings.add(("cluster", "node_matrix"), "unknown_field", "node_matrix belongs under links", ("links",))
    problem = _typed(expanded, findings)
    findings.raise_if_any(moved)
    assert problem is not None
    check_supported(problem, findings)
    completed = complete(problem, findings)
    check_parts(completed, findings)
    check(completed, findings)
    findings.raise_if_any(moved)
    return completed


def _typed(expanded: dict[str, Any], findings: Findings) -> Problem | None:
    try:
        return Problem.model_validate(expanded)
    except ValidationError as error:
        for path, item in field_errors(error, Problem, expanded):
            findings.take(path, item)
    return None
