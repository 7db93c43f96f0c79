"""From the bytes of a request to what the solver takes: in the server for small bodies, in a child process for large ones.

A large body holds the interpreter for long moments (one call of a JSON reader or validator cannot be interrupted), so that nobody
else in the process would be answered. The server passes its text on without reading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from planner_service.body import parse_json, require_members, require_object
from planner_service.problems import FieldProblem, Problem
from planner_service.solver_port import Checked, Document, SolverPort

Job = dict[str, Any]


class Profiles(Protocol):
    """Calibrated profiles by name."""

    def document(self, name: str) -> Document | None:
        """The profile of that name."""
        ...

    def names(self) -> tuple[str, ...]:
        """All names."""
        ...


class GivenProfiles:
    """Profiles that came with a job, as JSON texts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def document(self, name: str) -> Document | None:
        """See `Profiles`."""
        text = self._texts.get(name)
        return None if text is None else orjson.loads(text)

    def names(self) -> tuple[str, ...]:
        """See `Profiles`."""
        return tuple(sorted(self._texts))


def json_object_of(raw: bytes, max_depth: int, infinities: bool = False) -> Document:
    """The JSON object in these bytes; `infinities`: see `parse_json`."""
    return require_object(parse_json(raw, max_depth, infinities=infinities))


def unread_job(member: str, raw: bytes, max_depth: int, infinities: bool = False) -> Job:
    """Part of a job whose `member` the child shall read from text; raises 400 when the bytes are no text."""
    try:
        return {"unread": {"member": member, "text": raw.decode(), "max_depth": max_depth, "infinities": infinities}}
    except UnicodeDecodeError as error:
        raise Problem(400, "malformed_json", f"The body is not UTF-8 (byte {error.start}).") from None


def read_job(job: Job) -> Job:
    """The job with its text read, in the child."""
    unread = job.get("unread")
    if unread is None:
        return job
    return {**job, unread["member"]: json_object_of(unread["text"].encode(), unread["max_depth"], unread["infinities"])}


def checked_problem(solver: SolverPort, sent: Document, profiles: Profiles) -> tuple[Document, Checked]:
    """The problem with the profile it names, and what the solver says of it."""
    problem = resolved(solver, sent, profiles)
    return problem, solver.check(problem)


def evaluation_parts(solver: SolverPort, document: Document, profiles: Profiles) -> tuple[Document, Document]:
    """Problem and layout of the body of an evaluation."""
    require_members(document, ("problem", "layout"))
    problem, layout = require_object(document["problem"], "/problem"), require_object(document["layout"], "/layout")
    return resolved(solver, problem, profiles, "/problem"), layout


def profile_named(problem: Document) -> tuple[str, str] | None:
    """(name, pointer) of the profile a problem names: `cluster.profile`, else its software."""
    cluster, workload = problem.get("cluster"), problem.get("workload")
    if isinstance(cluster, dict) and isinstance(cluster.get("profile"), str):
        return cluster["profile"], "/cluster/profile"
    software = workload.get("software") if isinstance(workload, dict) else None
    if isinstance(software, dict) and isinstance(software.get("name"), str):
        return software["name"], "/workload/software/name"
    return (software, "/workload/software") if isinstance(software, str) else None


def resolved(solver: SolverPort, problem: Document, profiles: Profiles, prefix: str = "") -> Document:
    """The problem with the content of the calibrated profile it names; one that names none of them stays as it is.

    A `cluster.profile` must be one of them: raises 422 with the names there are.
    """
    named = profile_named(problem)
    if named is None:
        return problem
    name, place = named
    stored = profiles.document(name)
    if stored is not None:
        return solver.with_profile(problem, stored)
    if place == "/cluster/profile":
        error = FieldProblem(prefix + place, "unknown_name", "There is no calibrated profile of this name.", profiles.names())
        raise Problem(422, "invalid_problem", error.message, [error])
    return problem
