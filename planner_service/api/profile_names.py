"""Calibrated profiles that a problem names are replaced by their content before anything else reads the problem."""

from __future__ import annotations

from typing import Any

import orjson

from planner_service.problems import FieldProblem, Problem
from planner_service.services import Services

Document = dict[str, Any]


def profile_named(problem: Document) -> tuple[str, str] | None:
    """(name, pointer) of the profile a problem names: `cluster.profile`, else its software."""
    cluster, workload = problem.get("cluster"), problem.get("workload")
    if isinstance(cluster, dict) and isinstance(cluster.get("profile"), str):
        return cluster["profile"], "/cluster/profile"
    software = workload.get("software") if isinstance(workload, dict) else None
    if isinstance(software, dict) and isinstance(software.get("name"), str):
        return software["name"], "/workload/software/name"
    return (software, "/workload/software") if isinstance(software, str) else None


def resolved(services: Services, problem: Document, prefix: str = "") -> Document:
    """The problem with the content of the stored profile it names; one that names none of ours stays as it is.

    A `cluster.profile` must be ours: raises 422 with the names there are.
    """
    named = profile_named(problem)
    if named is None:
        return problem
    name, pointer = named
    stored = services.profiles.get(name)
    if stored is not None:
        return services.solver.with_profile(problem, orjson.loads(stored.document))
    if pointer == "/cluster/profile":
        known = tuple(entry.name for entry in services.profiles.all())
        error = FieldProblem(prefix + pointer, "unknown_name", "There is no calibrated profile of this name.", known)
        raise Problem(422, "invalid_problem", error.message, [error])
    return problem
