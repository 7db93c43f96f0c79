"""All SQL about searches as clients see them: submit, read, list, label, cancel, delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, and_, delete, exists, func, null, or_, select, update
from sqlalchemy.exc import IntegrityError

from planner_service.states import ANSWERING, TERMINAL, TRANSITIONS, Event, State
from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.events import log_state
from planner_service.store.generation import next_generation, read_generation
from planner_service.store.graves import bury_searches, is_buried
from planner_service.store.identifiers import new_search_id
from planner_service.store.records import NO_PROGRESS, Filters, NewSearch, SearchRecord
from planner_service.store.tables import checkpoints, idempotency_keys, search_tags, searches

SUBMIT_RETRIES = 5
MICROSECONDS = 1_000_000
UNCHANGED: Any = object()
COLUMNS = (
    searches.c.id,
    searches.c.state,
    searches.c.problem_digest,
    searches.c.request_digest,
    searches.c.created_at_us,
    searches.c.finished_at_us,
    searches.c.progress,
    searches.c.error,
    searches.c.model,
    searches.c.framework,
    searches.c.label,
    searches.c.note,
)


class QueueFull(Exception):
    """As many searches are queued as the settings allow."""


class KeyReused(Exception):
    """The idempotency key came with another request before."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The search that answers a request, and whether it is a new one."""

    search: SearchRecord
    created: bool


class SearchStore:
    """Searches for the HTTP interface; the job side is `store.leases`."""

    def __init__(self, engine: Engine, clock: Clock = now_us, max_queued: int = 500, idempotency_s: float = 86_400.0) -> None:
        self._engine = engine
        self._clock = clock
        self._max_queued = max_queued
        self._idempotency_us = int(idempotency_s * MICROSECONDS)

    def find_answer(self, problem_digest: str, request_digest: str, versions: str = "") -> SearchRecord | None:
        """The search that answers a request already, read without locking anything."""
        with reading(self._engine) as connection:
            return _answering(connection, problem_digest, request_digest, versions)

    def submit(self, new: NewSearch) -> Submitted:
        """The search that answers this request: a proven one of the same problem, an equal one, or a new one.

        The unique index decides between two that arrive at once; the loser reads again and finds the winner's.
        """
        for _ in range(SUBMIT_RETRIES):
            try:
                with writing(self._engine) as connection:
                    return self._submit(connection, new)
            except IntegrityError:
                continue
        raise AssertionError("an equal search was neither insertable nor readable")

    def get(self, search_id: str) -> SearchRecord | None:
        """The search with this id."""
        with reading(self._engine) as connection:
            return _one(connection, searches.c.id == search_id)

    def gone(self, search_id: str) -> bool:
        """Whether a search with this id was deleted or evicted."""
        with reading(self._engine) as connection:
            return is_buried(connection, search_id)

    def page(
        self,
        limit: int,
        before: tuple[int, str] | None = None,
        filters: Filters = Filters(),  # noqa: B008 (frozen)
    ) -> list[SearchRecord]:
        """Up to `limit` searches without their results, newest first, older than the (created_at_us, id) of `before`."""
        query = select(*COLUMNS, null().label("result")).limit(limit)
        query = query.order_by(searches.c.created_at_us.desc(), searches.c.id.desc())
        if before is not None:
            moment_us, search_id = before
            same_moment = and_(searches.c.created_at_us == moment_us, searches.c.id < search_id)
            query = query.where(or_(searches.c.created_at_us < moment_us, same_moment))
        with reading(self._engine) as connection:
            return _records(connection, _filtered(query, filters))

    def edit(
        self, search_id: str, label: str | None = UNCHANGED, note: str | None = UNCHANGED, tags: Iterable[str] = UNCHANGED
    ) -> SearchRecord | None:
        """Changes what is given; None takes a label or note away."""
        values = {name: value for name, value in (("label", label), ("note", note)) if value is not UNCHANGED}
        with writing(self._engine) as connection:
            if _locked(connection, search_id) is None:
                return None
            if values:
                connection.execute(update(searches).where(searches.c.id == search_id).values(**values))
            if tags is not UNCHANGED:
                connection.execute(delete(search_tags).where(search_tags.c.search_id == search_id))
                _insert_tags(connection, search_id, tags)
            next_generation(connection)
            return _one(connection, searches.c.id == search_id)

    def delete(self, search_id: str) -> bool | None:
        """Deletes an ended search: True; False when it has not ended, None when there is none."""
        with writing(self._engine) as connection:
            state = _locked(connection, search_id)
            if state is None:
                return None
            if state not in TERMINAL:
                return False
            bury_searches(connection, [search_id], self._clock())
            return True

    def cancel(self, search_id: str) -> SearchRecord | None:
        """Cancels a queued search at once, asks the owner of a running one to stop it, leaves an ended one alone."""
        step, moment_us = TRANSITIONS[Event.CANCEL_QUEUED], self._clock()
        ended = (
            update(searches)
            .where(searches.c.id == search_id, searches.c.state == step.source)
            .values(state=step.target, finished_at_us=moment_us, cancel_requested=True, last_seq=searches.c.last_seq + 1)
            .returning(searches.c.last_seq)
        )
        asked = (
            update(searches).where(searches.c.id == search_id, searches.c.state == State.RUNNING).values(cancel_requested=True)
        )
        with writing(self._engine) as connection:
            seq = connection.execute(ended).scalar()
            if seq is not None:
                log_state(connection, search_id, seq, step.target, moment_us)
                connection.execute(delete(checkpoints).where(checkpoints.c.search_id == search_id))
            else:
                connection.execute(asked)
            return _one(connection, searches.c.id == search_id)

    def generation(self) -> int:
        """Grows whenever a search or plan is edited or deleted: bytes kept elsewhere are good while it stays."""
        return read_generation(self._engine)

    def counts(self) -> dict[State, int]:
        """How many searches are in each state."""
        query = select(searches.c.state, func.count()).group_by(searches.c.state)
        with reading(self._engine) as connection:
            found = {State(state): count for state, count in connection.execute(query)}
        return {state: found.get(state, 0) for state in State}

    def queued(self) -> int:
        """How many searches wait."""
        with reading(self._engine) as connection:
            return _queued(connection)

    def _submit(self, connection: Connection, new: NewSearch) -> Submitted:
        """Inside one writing transaction."""
        found = self._of_key(connection, new)
        if found is not None:
            return Submitted(found, created=False)
        known = _answering(connection, new.problem_digest, new.request_digest, new.versions)
        search = known or self._insert(connection, new)
        if new.idempotency_key is not None:
            self._remember(connection, new, search.id)
        return Submitted(search, created=known is None)

    def _of_key(self, connection: Connection, new: NewSearch) -> SearchRecord | None:
        """The search that the key of this request stands for; raises `KeyReused` when it stood for another request."""
        if new.idempotency_key is None:
            return None
        keys = idempotency_keys
        fresh = (keys.c.key == new.idempotency_key, keys.c.created_at_us > self._clock() - self._idempotency_us)
        row = connection.execute(select(keys).where(*fresh)).first()
        if row is None:
            return None
        if row.request_digest != new.request_digest:
            raise KeyReused
        return _one(connection, searches.c.id == row.search_id)

    def _remember(self, connection: Connection, new: NewSearch, search_id: str) -> None:
        """The key stands for this search from now on."""
        connection.execute(delete(idempotency_keys).where(idempotency_keys.c.key == new.idempotency_key))
        values = {"key": new.idempotency_key, "request_digest": new.request_digest, "search_id": search_id}
        connection.execute(idempotency_keys.insert().values(**values, created_at_us=self._clock()))

    def _insert(self, connection: Connection, new: NewSearch) -> SearchRecord:
        """A new queued search, unless the queue is full."""
        if _queued(connection) >= self._max_queued:
            raise QueueFull
        moment_us = self._clock()
        search_id = new_search_id(moment_us)
        connection.execute(
            searches.insert().values(
                id=search_id,
                state=State.QUEUED,
                problem_digest=new.problem_digest,
                request_digest=new.request_digest,
                near_digest=new.near_digest,
                versions=new.versions,
                model=new.model,
                framework=new.framework,
                label=new.label,
                note=new.note,
                document=new.document,
                created_at_us=moment_us,
                progress=NO_PROGRESS,
                proven=False,
                attempts=0,
                cancel_requested=False,
                last_seq=1,
            )
        )
        _insert_tags(connection, search_id, new.tags)
        log_state(connection, search_id, 1, State.QUEUED, moment_us)
        found = _one(connection, searches.c.id == search_id)
        assert found is not None
        return found


def _answering(connection: Connection, problem_digest: str, request_digest: str, versions: str) -> SearchRecord | None:
    """A proven result of the same problem, else a search of the very same request that has not failed; of these versions."""
    current = searches.c.versions == versions
    proven = and_(searches.c.problem_digest == problem_digest, searches.c.proven, searches.c.state == State.DONE, current)
    equal = and_(searches.c.request_digest == request_digest, searches.c.state.in_(ANSWERING), current)
    return _one(connection, proven) or _one(connection, equal)


def _locked(connection: Connection, search_id: str) -> State | None:
    """The state of a search, which nobody else changes in this transaction."""
    query = select(searches.c.state).where(searches.c.id == search_id).with_for_update()
    state = connection.execute(query).scalar()
    return None if state is None else State(state)


def _queued(connection: Connection) -> int:
    query = select(func.count()).select_from(searches).where(searches.c.state == State.QUEUED)
    return connection.execute(query).scalar_one()


def _insert_tags(connection: Connection, search_id: str, tags: Iterable[str]) -> None:
    rows = [{"search_id": search_id, "tag": tag} for tag in dict.fromkeys(tags)]
    if rows:
        connection.execute(search_tags.insert(), rows)


def _filtered(query: Select[Any], filters: Filters) -> Select[Any]:
    """The query with what the filters demand."""
    for name in ("state", "label", "model", "framework", "problem_digest", "request_digest"):
        value = getattr(filters, name)
        if value is not None:
            query = query.where(searches.c[name] == value)
    if filters.tag is not None:
        query = query.where(exists().where(search_tags.c.search_id == searches.c.id, search_tags.c.tag == filters.tag))
    if filters.created_after_us is not None:
        query = query.where(searches.c.created_at_us > filters.created_after_us)
    if filters.created_before_us is not None:
        query = query.where(searches.c.created_at_us < filters.created_before_us)
    return query


def _one(connection: Connection, condition: ColumnElement[bool]) -> SearchRecord | None:
    """The oldest search that fulfils a condition."""
    query = select(*COLUMNS, searches.c.result).where(condition).order_by(searches.c.created_at_us, searches.c.id).limit(1)
    found = _records(connection, query)
    return found[0] if found else None


def _records(connection: Connection, query: Select[Any]) -> list[SearchRecord]:
    """The rows of a query as values, with their tags."""
    rows = connection.execute(query).all()
    tags = _tags(connection, [row.id for row in rows])
    return [_record(row, tags.get(row.id, ())) for row in rows]


def _tags(connection: Connection, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Sorted tags of each search that has some."""
    if not ids:
        return {}
    query = select(search_tags).where(search_tags.c.search_id.in_(ids)).order_by(search_tags.c.search_id, search_tags.c.tag)
    found: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(query):
        found[row.search_id] = (*found.get(row.search_id, ()), row.tag)
    return found


def _record(row: Row[Any], tags: tuple[str, ...]) -> SearchRecord:
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
        row.model,
        row.framework,
        row.label,
        row.note,
        tags,
    )
