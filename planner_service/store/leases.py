"""All SQL about running searches: a lease is held by one owner, renewed by its heartbeat, and taken over when it expires.

Every change names the state it leaves and the owner it belongs to in its WHERE clause, so an owner that was paused
past its lease changes nothing any more: a search never ends twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Engine, and_, func, or_, select, update

from planner_service.states import TRANSITIONS, Event, State
from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.plans import insert_plans
from planner_service.store.records import Claim, StoredPlan
from planner_service.store.tables import searches

MICROSECONDS = 1_000_000


class Beat(StrEnum):
    """What a heartbeat learns."""

    HELD = "held"
    CANCEL = "cancel"
    LOST = "lost"


class LeaseStore:
    """The job side of the searches table, for one owner."""

    def __init__(self, engine: Engine, owner: str, lease_s: float, max_attempts: int, clock: Clock = now_us) -> None:
        self._engine = engine
        self._owner = owner
        self._lease_us = int(lease_s * MICROSECONDS)
        self._max_attempts = max_attempts
        self._clock = clock

    def waiting(self) -> bool:
        """Whether there is something to claim or to bury; reads only."""
        with reading(self._engine) as connection:
            return connection.execute(select(searches.c.id).where(self._claimable()).limit(1)).first() is not None

    def claim(self) -> Claim | None:
        """The oldest search that is queued or whose owner let the lease expire; it is ours until the lease ends."""
        moment_us = self._clock()
        oldest = (
            select(searches.c.id)
            .where(self._claimable(), searches.c.attempts < self._max_attempts)
            .order_by(searches.c.created_at_us, searches.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        statement = (
            update(searches)
            .where(searches.c.id == oldest)
            .values(
                state=TRANSITIONS[Event.CLAIM].target,
                attempts=searches.c.attempts + 1,
                lease_owner=self._owner,
                lease_expires_us=moment_us + self._lease_us,
            )
            .returning(searches.c.id, searches.c.document, searches.c.attempts)
        )
        with writing(self._engine) as connection:
            row = connection.execute(statement).first()
        return Claim(row.id, row.document, row.attempts) if row else None

    def bury(self, error: str) -> int:
        """Fails the searches whose last allowed attempt was lost with its owner; returns how many."""
        step = TRANSITIONS[Event.POISON]
        statement = (
            update(searches)
            .where(self._expired(), searches.c.attempts >= self._max_attempts)
            .values(state=step.target, error=error, **self._ended())
        )
        with writing(self._engine) as connection:
            return connection.execute(statement).rowcount

    def beat(self, search_id: str, progress: str | None) -> Beat:
        """Renews the lease and stores the newest progress; says whether the search is still ours and wanted."""
        values: dict[str, object] = {"lease_expires_us": self._clock() + self._lease_us}
        if progress is not None:
            values["progress"] = progress
        statement = update(searches).where(self._ours(search_id)).values(**values).returning(searches.c.cancel_requested)
        with writing(self._engine) as connection:
            row = connection.execute(statement).first()
        if row is None:
            return Beat.LOST
        return Beat.CANCEL if row.cancel_requested else Beat.HELD

    def finish(self, search_id: str, result: str, proven: bool, items: Iterable[StoredPlan], progress: str | None) -> bool:
        """Stores the result and every plan it refers to in one transaction; False when the lease was lost."""
        with writing(self._engine) as connection:
            insert_plans(connection, items, self._clock())
            kept = self._end(connection, search_id, Event.FINISH, progress, result=result, proven=proven)
            if not kept:
                connection.rollback()
            return kept

    def fail(self, search_id: str, error: str, progress: str | None = None, event: Event = Event.FAIL) -> bool:
        """Ends a search with a problem document."""
        with writing(self._engine) as connection:
            return self._end(connection, search_id, event, progress, error=error)

    def cancelled(self, search_id: str, result: str | None, items: Iterable[StoredPlan], progress: str | None) -> bool:
        """Ends a search that was told to stop, with what it had found by then."""
        with writing(self._engine) as connection:
            insert_plans(connection, items, self._clock())
            return self._end(connection, search_id, Event.CANCEL_RUNNING, progress, result=result)

    def release(self, search_id: str, refund: bool) -> bool:
        """Puts a search back into the queue; `refund` when the attempt was ended by us and not by its own fault."""
        step = TRANSITIONS[Event.RELEASE]
        values: dict[str, object] = {"state": step.target, "lease_owner": None, "lease_expires_us": None}
        if refund:
            values["attempts"] = searches.c.attempts - 1
        with writing(self._engine) as connection:
            return connection.execute(update(searches).where(self._ours(search_id)).values(**values)).rowcount == 1

    def expire(self, owners: Iterable[str]) -> int:
        """Ends the leases of owners known to be dead, so that their searches need not wait; returns how many."""
        statement = (
            update(searches)
            .where(searches.c.state == State.RUNNING, searches.c.lease_owner.in_(list(owners)))
            .values(lease_expires_us=0)
        )
        with writing(self._engine) as connection:
            return connection.execute(statement).rowcount

    def owners(self) -> list[str]:
        """Who holds leases now."""
        query = select(searches.c.lease_owner).where(searches.c.state == State.RUNNING).distinct()
        with reading(self._engine) as connection:
            return [owner for (owner,) in connection.execute(query)]

    def running(self) -> int:
        """How many searches are running anywhere."""
        query = select(func.count()).select_from(searches).where(searches.c.state == State.RUNNING)
        with reading(self._engine) as connection:
            return connection.execute(query).scalar_one()

    def _ours(self, search_id: str) -> ColumnElement[bool]:
        """Condition: still running and still this owner's."""
        return and_(searches.c.id == search_id, searches.c.state == State.RUNNING, searches.c.lease_owner == self._owner)

    def _expired(self) -> ColumnElement[bool]:
        """Condition: running, but its owner stopped renewing the lease."""
        return and_(searches.c.state == TRANSITIONS[Event.RECLAIM].source, searches.c.lease_expires_us < self._clock())

    def _claimable(self) -> ColumnElement[bool]:
        """Condition: queued, or its lease has expired."""
        return or_(searches.c.state == TRANSITIONS[Event.CLAIM].source, self._expired())

    def _ended(self) -> dict[str, object]:
        """The columns every ended search has."""
        return {"finished_at_us": self._clock(), "lease_owner": None, "lease_expires_us": None}

    def _end(self, connection: Connection, search_id: str, event: Event, progress: str | None, **values: object) -> bool:
        """Moves our running search to the event's end state."""
        step = TRANSITIONS[event]
        assert step.source is State.RUNNING
        if progress is not None:
            values["progress"] = progress
        statement = update(searches).where(self._ours(search_id)).values(state=step.target, **values, **self._ended())
        return connection.execute(statement).rowcount == 1
