"""The log of each search: what changed, numbered, so that a reader who was away can go on where it was.

An event is written in the transaction of the change it tells. Of progress and incumbents only the newest are kept; changes
of state stay, and the last one ends the log.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson
from sqlalchemy import Connection, Engine, delete, select

from planner_service.states import State
from planner_service.store.engine import reading
from planner_service.store.records import SearchEvent
from planner_service.store.tables import events, searches

STATE, PROGRESS, INCUMBENT = "state", "progress", "incumbent"
KEPT = {PROGRESS: 200, INCUMBENT: 500}
"""events of a kind whose number is more than this below the newest are deleted"""


def log_event(connection: Connection, search_id: str, seq: int, kind: str, data: str, moment_us: int) -> None:
    """Adds event `seq`; the caller has raised the search's `last_seq` to it in the same transaction."""
    connection.execute(events.insert().values(search_id=search_id, seq=seq, kind=kind, data=data, at_us=moment_us))
    if kind in KEPT:
        old = (events.c.search_id == search_id, events.c.kind == kind, events.c.seq <= seq - KEPT[kind])
        connection.execute(delete(events).where(*old))


def log_state(connection: Connection, search_id: str, seq: int, state: State, moment_us: int, attempt: int | None = None) -> None:
    """Adds a change of state."""
    data = {"state": state} if attempt is None else {"state": state, "attempt": attempt}
    log_event(connection, search_id, seq, STATE, orjson.dumps(data).decode(), moment_us)


class EventStore:
    """Reads the log."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def after(self, search_id: str, seq: int, limit: int) -> list[SearchEvent]:
        """Up to `limit` events with greater numbers, in order; numbers that are missing were thinned out."""
        query = select(events.c.seq, events.c.kind, events.c.data, events.c.at_us)
        query = query.where(events.c.search_id == search_id, events.c.seq > seq).order_by(events.c.seq).limit(limit)
        with reading(self._engine) as connection:
            return [SearchEvent(*row) for row in connection.execute(query)]

    def latest(self, search_ids: Iterable[str]) -> dict[str, tuple[State, int]]:
        """State and newest number of each of these searches that exists."""
        query = select(searches.c.id, searches.c.state, searches.c.last_seq).where(searches.c.id.in_(list(search_ids)))
        with reading(self._engine) as connection:
            return {row.id: (State(row.state), row.last_seq) for row in connection.execute(query)}
