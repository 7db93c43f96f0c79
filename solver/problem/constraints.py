"""The constraint words: each value in its own type, fixed values among the allowed ones."""

from __future__ import annotations

from typing import Any

from solver.catalog import nearest
from solver.problem.findings import Findings
from solver.problem.options import Constraints, WordError, word_value
from solver.problem.pointers import Path

#: Grid of offloaded fractions.
OFFLOAD_GRID = (0.0, 0.25, 0.5, 0.75, 1.0)


def typed_constraints(constraints: Constraints, findings: Findings) -> Constraints:
    """The constraints with typed values; what is wrong is noted."""
    fixed: dict[str, Any] = {}
    for word, value in constraints.fixed.items():
        _store(fixed, word, value, ("constraints", "fixed", word), findings)
    allowed: dict[str, tuple[Any, ...]] = {}
    for word, values in constraints.allowed.items():
        path: Path = ("constraints", "allowed", word)
        typed: dict[Any, Any] = {}
        for index, value in enumerate(values):
            _store(typed, word, value, (*path, index), findings, key=index)
        if not values:
            findings.add(path, "out_of_range", "at least one value must be allowed")
        allowed[word] = tuple(typed.values())
        if word in fixed and fixed[word] not in allowed[word]:
            message = f"{fixed[word]!r} is fixed but not among the allowed values"
            findings.add(("constraints", "fixed", word), "conflict", message, allowed[word])
    return constraints.model_copy(update={"fixed": fixed, "allowed": allowed})


def _store(target: dict[Any, Any], word: str, value: Any, path: Path, findings: Findings, key: Any = None) -> None:
    try:
        typed = word_value(word, value)
    except WordError as error:
        where = path if error.code != "unknown_field" else path[:3]
        close = nearest(word, map(str, error.allowed or ())) if error.code == "unknown_field" else None
        findings.add(where, error.code, error.message + (f"; did you mean {close!r}?" if close else ""), error.allowed)
        return
    if word.startswith("offload_") and typed not in OFFLOAD_GRID:
        findings.add(path, "out_of_range", "offloaded fractions lie on a grid", OFFLOAD_GRID)
        return
    target[word if key is None else key] = typed
