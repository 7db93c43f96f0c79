"""All SQL about searches as clients see them: submit, read, list, cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from planner_service.states import ANSWERING, TRANSITIONS, Event, State
from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.identifiers import new_search_id
from planner_service.store.records import NO_PROGRESS, SearchRecord
from planner_service.store.tables import searches

SUBMIT_RETRIES = 5


class QueueFull(Exception):
    """As many searches are queued as the settings allow."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The search that answers a request, and whether it is a new one."""

    search: SearchRecord
    created: bool


class SearchStore:
    """Searches for the HTTP interface; the job side is `store.leases`."""

    def __init__(self, engine: Engine, clock: Clock = now_us, max_queued: int = 500) -> None:
        self._engine = engine
        self._clock = clock
        self._max_queued = max_queued

    def submit(self, document: str, problem_digest: str, request_digest: str) -> Submitted:
        """The search that answers this request: a proven one of the same problem, an equal one, or a new one.

        The unique index decides between two that arrive at once; the loser reads again and finds the winner's.
        """
        for _ in range(SUBMIT_RETRIES):
            try:
                with writing(self._engine) as connection:
                    known = self._answering(connection, problem_digest, request_digest)
                    if known is not None:
                        return Submitted(known, created=False)
                    return Submitted(self._insert(connection, document, problem_digest, request_digest), created=True)
            except IntegrityError:
                continue
        raise AssertionError("an equal search was neither insertable nor readable")

    def get(self, search_id: str) -> SearchRecord | None:
        """The search with this id."""
        with reading(self._engine) as connection:
            return _one(connection, searches.c.id == search_id)

    def page(self, limit: int, before: tuple[int, str] | None = None, state: State | None = None) -> list[SearchRecord]:
        """Up to `limit` searches, newest first, older than the (created_at_us, id) of `before`."""
        query = select(searches).order_by(searches.c.created_at_us.desc(), searches.c.id.desc()).limit(limit)
        if before is not None:
            moment_us, search_id = before
            same_moment = and_(searches.c.created_at_us == moment_us, searches.c.id < search_id)
            query = query.where(or_(searches.c.created_at_us < moment_us, same_moment))
        if state is not None:
            query = query.where(searches.c.state == state)
        with reading(self._engine) as connection:
            return [_record(row) for row in connection.execute(query)]

    def cancel(self, search_id: str) -> SearchRecord | None:
        """Cancels a queued search at once, asks the owner of a running one to stop it, leaves an ended one alone."""
        queued = TRANSITIONS[Event.CANCEL_QUEUED]
        with writing(self._engine) as connection:
            connection.execute(
                update(searches)
                .where(searches.c.id == search_id, searches.c.state == queued.source)
                .values(state=queued.target, finished_at_us=self._clock(), cancel_requested=True)
            )
            connection.execute(
                update(searches)
                .where(searches.c.id == search_id, searches.c.state == State.RUNNING)
                .values(cancel_requested=True)
            )
            return _one(connection, searches.c.id == search_id)

    def _answering(self, connection: Connection, problem_digest: str, request_digest: str) -> SearchRecord | None:
        """A proven result of the same problem, else a search of the very same request that has not failed."""
        proven = and_(searches.c.problem_digest == problem_digest, searches.c.proven, searches.c.state == State.DONE)
        equal = and_(searches.c.request_digest == request_digest, searches.c.state.in_(ANSWERING))
        return _one(connection, proven) or _one(connection, equal)

    def _insert(self, connection: Connection, document: str, problem_digest: str, request_digest: str) -> SearchRecord:
        """A new queued search, unless the queue is full."""
        queued = connection.execute(
            select(func.count()).select_from(searches).where(searches.c.state == State.QUEUED)
        ).scalar_one()
        if queued >= self._max_queued:
            raise QueueFull
        moment_us = self._clock()
        search_id = new_search_id(moment_us)
        connection.execute(
            searches.insert().values(
                id=search_id,
                state=State.QUEUED,
                problem_digest=problem_digest,
                request_digest=request_digest,
                document=document,
                created_at_us=moment_us,
                progress=NO_PROGRESS,
                proven=False,
                attempts=0,
                cancel_requested=False,
            )
        )
        found = _one(connection, searches.c.id == search_id)
        assert found is not None
        return found


def _one(connection: Connection, condition: ColumnElement[bool]) -> SearchRecord | None:
    """The oldest search that fulfils a condition."""
    query = select(searches).where(condition).order_by(searches.c.created_at_us, searches.c.id).limit(1)
    row = connection.execute(query).first()
    return _record(row) if row else None


def _record(row: Row[Any]) -> SearchRecord:
    """A row as a value."""
    return SearchRecord(
        row.id,
        State(row.state),
        row.problem_digest,
        row.request_digest,
        row.created_at_us,
        row.finished_at_us,
        row.progress,
        row.result,
        row.error,
    )
