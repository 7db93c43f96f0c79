"""All SQL about running searches: a lease is held by one owner, renewed by its heartbeat, and taken over when it expires.

Every change names the state it leaves and the owner it belongs to in its WHERE clause, so an owner that was paused
past its lease changes nothing any more: a search never ends twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, ScalarSelect, and_, case, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from planner_service.states import TRANSITIONS, Event, State
from planner_service.store.attempts import LOST, begin_attempt, end_attempt, store_reproduction
from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.events import INCUMBENT, PROGRESS, log_event, log_state
from planner_service.store.plans import insert_plans
from planner_service.store.records import NO_PROGRESS, Checkpoint, Claim, StoredPlan
from planner_service.store.tables import attempts, checkpoints, searches

MICROSECONDS = 1_000_000
MOST_NEIGHBOURS = 3
WRITE_RETRIES = 3


class Beat(StrEnum):
    """What a heartbeat learns."""

    HELD = "held"
    CANCEL = "cancel"
    LOST = "lost"


class LeaseStore:
    """The job side of the searches table, for one owner whose solver has these `versions`."""

    def __init__(
        self, engine: Engine, owner: str, lease_s: float, max_takeovers: int, clock: Clock = now_us, versions: str = ""
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._lease_us = int(lease_s * MICROSECONDS)
        self._max_takeovers = max_takeovers
        self._clock = clock
        self._versions = versions

    def waiting(self) -> bool:
        """Whether there is something to claim or to bury; reads only."""
        with reading(self._engine) as connection:
            return connection.execute(select(searches.c.id).where(self._claimable()).limit(1)).first() is not None

    def claim(self) -> Claim | None:
        """The oldest search that is queued or whose owner let the lease expire; it is ours until the lease ends.

        A take-over uses up no attempt: what ended the owner was hardly the search. How many there may be is bounded apart.
        """
        moment_us = self._clock()
        oldest = (
            select(searches.c.id)
            .where(or_(self._queued(), and_(self._expired(), _losses() < self._max_takeovers)))
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
                attempts=searches.c.attempts + case((self._queued(), 1), else_=0),
                lease_owner=self._owner,
                lease_expires_us=moment_us + self._lease_us,
                last_seq=searches.c.last_seq + 1,
            )
            .returning(searches)
        )
        with writing(self._engine) as connection:
            row = connection.execute(statement).first()
            return None if row is None else self._claimed(connection, row, moment_us)

    def bury(self, error: str) -> int:
        """Fails the searches that lost one owner more than may be taken over from; returns how many."""
        query = select(searches.c.id).where(self._expired(), _losses() >= self._max_takeovers).with_for_update(skip_locked=True)
        with writing(self._engine) as connection:
            lost = [search_id for (search_id,) in connection.execute(query)]
            for search_id in lost:
                end_attempt(connection, search_id, LOST, self._clock())
                store_reproduction(connection, search_id, self._clock())
                self._end(connection, self._expired(search_id), search_id, Event.POISON, None, error=error)
        return len(lost)

    def beat(self, search_id: str, progress: str | None, checkpoint: Checkpoint | None = None, improved: bool = False) -> Beat:
        """Renews the lease and stores the newest progress, with what it rests on; says whether the search is still ours
        and wanted. `improved`: the incumbent is a new one."""
        moment_us = self._clock()
        values: dict[str, object] = {"lease_expires_us": moment_us + self._lease_us}
        if progress is not None:
            values |= {"progress": progress, "last_seq": searches.c.last_seq + 1}
        statement = update(searches).where(self._ours(search_id)).values(**values)
        with writing(self._engine) as connection:
            row = connection.execute(statement.returning(searches.c.cancel_requested, searches.c.last_seq)).first()
            if row is None:
                return Beat.LOST
            if progress is not None:
                log_event(connection, search_id, row.last_seq, INCUMBENT if improved else PROGRESS, progress, moment_us)
            if checkpoint is not None:
                self._store_checkpoint(connection, search_id, checkpoint, moment_us)
        return Beat.CANCEL if row.cancel_requested else Beat.HELD

    def cancel_wanted(self, search_id: str) -> bool:
        """Whether somebody asked to stop a search; reads only."""
        query = select(searches.c.cancel_requested).where(searches.c.id == search_id)
        with reading(self._engine) as connection:
            return bool(connection.execute(query).scalar())

    def finish(self, search_id: str, result: str, proven: bool, items: Iterable[StoredPlan], progress: str | None) -> bool:
        """Stores the result and every plan it refers to in one transaction; False when the lease was lost."""
        return self._end_with(search_id, Event.FINISH, tuple(items), progress, result=result, proven=proven)

    def cancelled(self, search_id: str, result: str | None, items: Iterable[StoredPlan], progress: str | None) -> bool:
        """Ends a search that was told to stop, with what it had found by then."""
        return self._end_with(search_id, Event.CANCEL_RUNNING, tuple(items), progress, result=result)

    def fail(
        self, search_id: str, error: str, progress: str | None = None, event: Event = Event.FAIL, ending: str = "failed"
    ) -> bool:
        """Ends a search with a problem document; a poisoned one leaves its reproduction."""
        with writing(self._engine) as connection:
            ours = connection.execute(select(searches.c.id).where(self._ours(search_id)).with_for_update()).first()
            if ours is None:
                return False
            end_attempt(connection, search_id, ending, self._clock())
            if event is Event.POISON:
                store_reproduction(connection, search_id, self._clock())
            return self._end(connection, self._ours(search_id), search_id, event, progress, error=error)

    def release(self, search_id: str, refund: bool, ending: str = "stopped with its server") -> bool:
        """Puts a search back into the queue; `refund` when the attempt was ended by us and not by its own fault."""
        step, moment_us = TRANSITIONS[Event.RELEASE], self._clock()
        values: dict[str, object] = {"state": step.target, "lease_owner": None, "lease_expires_us": None}
        if refund:
            values["attempts"] = searches.c.attempts - 1
        statement = update(searches).where(self._ours(search_id)).values(**values, last_seq=searches.c.last_seq + 1)
        with writing(self._engine) as connection:
            seq = connection.execute(statement.returning(searches.c.last_seq)).scalar()
            if seq is None:
                return False
            end_attempt(connection, search_id, ending, moment_us)
            log_state(connection, search_id, seq, step.target, moment_us)
            return True

    def expire(self, owners: Iterable[str]) -> int:
        """Ends the leases of owners known to be dead, so that their searches need not wait; returns how many."""
        dead = list(owners)
        if not dead:
            return 0
        running = (searches.c.state == State.RUNNING, searches.c.lease_owner.in_(dead))
        with writing(self._engine) as connection:
            return connection.execute(update(searches).where(*running).values(lease_expires_us=0)).rowcount

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

    # ------------------------------------------------------------------------------------------------------------- conditions
    def _ours(self, search_id: str) -> ColumnElement[bool]:
        """Condition: still running and still this owner's."""
        return and_(searches.c.id == search_id, searches.c.state == State.RUNNING, searches.c.lease_owner == self._owner)

    def _expired(self, search_id: str | None = None) -> ColumnElement[bool]:
        """Condition: running, but its owner stopped renewing the lease."""
        expired = and_(searches.c.state == TRANSITIONS[Event.RECLAIM].source, searches.c.lease_expires_us < self._clock())
        return expired if search_id is None else and_(searches.c.id == search_id, expired)

    def _claimable(self) -> ColumnElement[bool]:
        """Condition: queued, or its lease has expired."""
        return or_(self._queued(), self._expired())

    def _queued(self) -> ColumnElement[bool]:
        """Condition: waiting for its next attempt."""
        return searches.c.state == TRANSITIONS[Event.CLAIM].source

    # ---------------------------------------------------------------------------------------------------------------- writing
    def _claimed(self, connection: Connection, row: Row[Any], moment_us: int) -> Claim:
        """Notes the start, and gathers what it can begin with."""
        start = begin_attempt(connection, row.id, self._owner, moment_us)
        log_state(connection, row.id, row.last_seq, State.RUNNING, moment_us, start)
        checkpoint = self._read_checkpoint(connection, row.id)
        progress = row.progress
        private = f"{self._versions}#{row.id}"
        if row.versions not in (self._versions, private):
            # what other versions priced and proved says nothing here, and the answer to come is not that of its digests
            progress = NO_PROGRESS
            checkpoint = None if checkpoint is None else Checkpoint(checkpoint.layout, None, None)
            statement = update(searches).where(searches.c.id == row.id)
            connection.execute(statement.values(versions=private, progress=progress))
        return Claim(row.id, row.document, row.attempts, progress, checkpoint, self._neighbours(connection, row))

    def _neighbours(self, connection: Connection, row: Row[Any]) -> tuple[str, ...]:
        """Results of the newest ended searches whose answers may help this one."""
        if row.near_digest is None:
            return ()
        near = (searches.c.near_digest == row.near_digest, searches.c.state == State.DONE, searches.c.id != row.id)
        query = select(searches.c.result).where(*near).order_by(searches.c.created_at_us.desc()).limit(MOST_NEIGHBOURS)
        return tuple(result for (result,) in connection.execute(query))

    def _read_checkpoint(self, connection: Connection, search_id: str) -> Checkpoint | None:
        row = connection.execute(select(checkpoints).where(checkpoints.c.search_id == search_id)).first()
        return None if row is None else Checkpoint(row.layout, row.incumbent, row.bound)

    def _store_checkpoint(self, connection: Connection, search_id: str, known: Checkpoint, moment_us: int) -> None:
        """The newest checkpoint of our search, instead of the one before."""
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        values = {"layout": known.layout, "incumbent": known.incumbent, "bound": known.bound, "updated_at_us": moment_us}
        statement = dialect.insert(checkpoints).values(search_id=search_id, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["search_id"], set_=values))

    def _end_with(
        self, search_id: str, event: Event, items: tuple[StoredPlan, ...], progress: str | None, **values: object
    ) -> bool:
        """Ends our search together with its plans; again when a plan was evicted between two statements."""
        for left in reversed(range(WRITE_RETRIES)):
            try:
                with writing(self._engine) as connection:
                    kept = self._end(connection, self._ours(search_id), search_id, event, progress, **values)
                    if kept:
                        insert_plans(connection, items, self._clock(), search_id)
                        end_attempt(connection, search_id, str(TRANSITIONS[event].target), self._clock())
                return kept
            except IntegrityError:
                if not left:
                    raise
        raise AssertionError("the loop returns or raises")

    def _end(
        self,
        connection: Connection,
        condition: ColumnElement[bool],
        search_id: str,
        event: Event,
        progress: str | None,
        **values: object,
    ) -> bool:
        """Moves a running search to the event's end state; what only running searches need is dropped."""
        step, moment_us = TRANSITIONS[event], self._clock()
        assert step.source is State.RUNNING
        if progress is not None:
            values["progress"] = progress
        ended = {"finished_at_us": moment_us, "lease_owner": None, "lease_expires_us": None}
        statement = update(searches).where(condition).values(state=step.target, **values, **ended)
        seq = connection.execute(statement.values(last_seq=searches.c.last_seq + 1).returning(searches.c.last_seq)).scalar()
        if seq is None:
            return False
        log_state(connection, search_id, seq, step.target, moment_us)
        connection.execute(delete(checkpoints).where(checkpoints.c.search_id == search_id))
        return True


def _losses() -> ScalarSelect[int]:
    """How many owners a search has lost, the present one not counted."""
    lost = (attempts.c.search_id == searches.c.id, attempts.c.ending == LOST)
    return select(func.count()).select_from(attempts).where(*lost).correlate(searches).scalar_subquery()
