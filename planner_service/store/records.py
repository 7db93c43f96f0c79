"""What the repositories take and hand out: plain frozen values, never rows or sessions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from planner_service.states import State

NO_PROGRESS = '{"done":0,"total":null,"incumbent":null,"bound":null,"gap":null}'


@dataclass(frozen=True, slots=True)
class NewSearch:
    """A request for a search. `versions` (of solver, cost model and data) belongs to the cache key as the digests do;
    `near_digest` is equal for problems whose answers are worth trying on each other."""

    document: str
    problem_digest: str
    request_digest: str
    model: str = ""
    framework: str = ""
    near_digest: str | None = None
    versions: str = ""
    label: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None


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
    model: str = ""
    framework: str = ""
    label: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filters:
    """Which searches a list shows; None: all."""

    state: State | None = None
    label: str | None = None
    tag: str | None = None
    model: str | None = None
    framework: str | None = None
    problem_digest: str | None = None
    request_digest: str | None = None
    created_after_us: int | None = None
    created_before_us: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The best layout that an unended search has found (a JSON text), its value, and the bound proven so far."""

    layout: str | None
    incumbent: float | None
    bound: float | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A search that this owner now runs, until its lease expires; `neighbours` are results of problems near to it."""

    id: str
    document: str
    attempts: int
    progress: str = NO_PROGRESS
    checkpoint: Checkpoint | None = None
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchEvent:
    """Something that happened to a search: `seq` grows, `kind` is state, progress or incumbent, `data` a JSON text."""

    seq: int
    kind: str
    data: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a search is that took its process with it in every attempt, as a JSON text."""

    search_id: str
    body: str
    created_at_us: int


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """An immutable plan and the normal form of the problem it follows from."""

    id: str
    body: str
    context: str

    @property
    def content(self) -> bytes:
        """What the checksum is over."""
        return (self.body + "\n" + self.context).encode()

    @property
    def checksum(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()
