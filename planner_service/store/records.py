"""What the repositories hand out: plain frozen values, never rows or sessions."""

from __future__ import annotations

from dataclasses import dataclass

from planner_service.states import State

NO_PROGRESS = '{"done":0,"total":null,"incumbent":null,"bound":null,"gap":null}'


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """One search as stored; `progress`, `result` and `error` are JSON texts returned byte for byte."""

    id: str
    state: State
    problem_digest: str
    request_digest: str
    created_at_us: int
    finished_at_us: int | None
    progress: str
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A search that this owner now runs, until its lease expires."""

    id: str
    document: str
    attempts: int


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """An immutable plan and the normal form of the problem it follows from."""

    id: str
    body: str
    context: str
