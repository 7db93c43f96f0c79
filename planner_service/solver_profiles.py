"""Calibrations and software profiles of the solver in JSON terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import solver
from planner_service.problems import FieldProblem, Problem

Document = dict[str, Any]
MEMBERS = ("name", "base", "runs", "collectives", "device", "ranks", "nodes")
MAX_RUNS = 500
MAX_NAME_CHARS = 100


def calibration(request: Mapping[str, Any]) -> Document:
    """The profile document of a calibration request; raises InvalidProblem and Problem."""
    errors = list(_faults(request))
    if errors:
        raise Problem(422, "invalid_document", errors[0].message, errors)
    measurements = solver.Measurements(
        runs=_csv(request["runs"]) if request.get("runs") is not None else None,
        collectives=tuple(request.get("collectives") or ()),
        device=request.get("device"),
        ranks=request.get("ranks"),
        nodes=request.get("nodes"),
    )
    return solver.calibrate(measurements, name=request["name"], base=request.get("base"))


def _faults(request: Mapping[str, Any]) -> Sequence[FieldProblem]:
    found = [FieldProblem(f"/{name}", "unknown_field", "unknown field", MEMBERS) for name in request if name not in MEMBERS]
    name = request.get("name")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= MAX_NAME_CHARS:
        found.append(
            FieldProblem("/name", "missing" if name is None else "invalid", f"a name of 1 to {MAX_NAME_CHARS} characters")
        )
    elif is_shipped(name):
        found.append(FieldProblem("/name", "conflict", "this is the name of a profile that ships with the service"))
    runs = request.get("runs")
    if not (runs is None or isinstance(runs, str) or _is_rows(runs)):
        found.append(FieldProblem("/runs", "wrong_type", "a CSV text, or a list of rows as objects of column and value"))
    elif runs is not None and (len(runs.splitlines()) - 1 if isinstance(runs, str) else len(runs)) > MAX_RUNS:
        found.append(FieldProblem("/runs", "too_large", f"at most {MAX_RUNS} runs"))
    texts = request.get("collectives")
    if not (texts is None or (isinstance(texts, list) and all(isinstance(text, str) for text in texts))):
        found.append(FieldProblem("/collectives", "wrong_type", "a list of nccl-tests outputs"))
    for member, kind in (("base", str), ("device", str), ("ranks", int), ("nodes", int)):
        value = request.get(member)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) or value in ("", 0)):
            found.append(FieldProblem(f"/{member}", "wrong_type", "a name" if kind is str else "a count"))
    return found


def _is_rows(runs: Any) -> bool:
    return isinstance(runs, list) and all(isinstance(row, dict) for row in runs)


def _csv(runs: str | list[dict[str, Any]]) -> str:
    """Rows as CSV text; what a cell cannot hold is told apart by the reader."""
    if isinstance(runs, str):
        return runs
    names = [name for name in solver.RUN_COLUMNS if any(name in row for row in runs)]
    unknown = sorted({name for row in runs for name in row if name not in solver.RUN_COLUMNS})
    if unknown:
        raise Problem(
            422,
            "invalid_document",
            "unknown columns",
            [FieldProblem(f"/runs/{unknown[0]}", "unknown_field", "unknown column", solver.RUN_COLUMNS)],
        )
    lines = [",".join(_quoted(row.get(name, "")) for name in names) for row in runs]
    return "\n".join([",".join(names), *lines])


def _quoted(value: Any) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""').replace("\n", " ") + '"'


def is_shipped(name: str) -> bool:
    """Whether the catalogue has a profile of this name or alias."""
    folded = name.lower()
    return any(folded in {known.lower(), *(a.lower() for a in entry.aliases)} for known, entry in solver.profiles().items())


def shipped_profiles() -> list[Document]:
    """Profiles that ship, in the shape of calibrated ones."""
    return [
        {
            "name": entry.name,
            "base": None,
            "aliases": list(entry.aliases),
            "software": {"name": entry.name, "assumptions": entry.assumptions},
            "devices": [],
            "sources": entry.sources,
        }
        for entry in solver.profiles().values()
    ]


def with_profile(problem: Document, profile: Document) -> Document:
    """The problem with a calibrated profile in place of its name."""
    return solver.apply_profile(problem, profile)
