"""What must hold in a healthy database, beside what the database itself enforces."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Engine, exists, func, select, text

from planner_service.states import TERMINAL, State
from planner_service.store.engine import reading
from planner_service.store.events import STATE
from planner_service.store.records import StoredPlan
from planner_service.store.tables import checkpoints, events, plans, reproductions, searches

BATCH = 500


def findings(engine: Engine) -> list[str]:
    """Everything that is wrong, one sentence each."""
    with reading(engine) as connection:
        return [*_engine_findings(connection), *_search_findings(connection), *_event_findings(connection), *_plans(connection)]


def _engine_findings(connection: Connection) -> Iterator[str]:
    """SQLite can check its own pages and references; PostgreSQL enforces references always."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.execute(text("PRAGMA integrity_check")):
        if line != "ok":
            yield f"integrity check: {line}"
    for row in connection.execute(text("PRAGMA foreign_key_check")):
        yield f"table {row[0]}: row {row[1]} refers to a row of {row[2]} that is not there"


def _search_findings(connection: Connection) -> Iterator[str]:
    """Ended searches have an end and what belongs to it; only running ones have a lease, only unended ones a checkpoint."""
    ended = searches.c.state.in_(list(TERMINAL))
    wrong = {
        "is done without a result": (searches.c.state == State.DONE) & searches.c.result.is_(None),
        "failed without an error": (searches.c.state == State.FAILED) & searches.c.error.is_(None),
        "has ended without a time": ended & searches.c.finished_at_us.is_(None),
        "has not ended and has an end time": ~ended & searches.c.finished_at_us.is_not(None),
        "has ended and keeps a checkpoint": ended & exists().where(checkpoints.c.search_id == searches.c.id),
        "is not failed and has a reproduction": (searches.c.state != State.FAILED)
        & exists().where(reproductions.c.search_id == searches.c.id),
    }
    for sentence, condition in wrong.items():
        for (search_id,) in connection.execute(select(searches.c.id).where(condition)):
            yield f"search {search_id} {sentence}"


def _event_findings(connection: Connection) -> Iterator[str]:
    """The newest event has the number that the search says, and that of an ended search tells its state."""
    newest = select(events.c.search_id, func.max(events.c.seq).label("seq")).group_by(events.c.search_id).subquery()
    joined = select(searches.c.id, searches.c.state, searches.c.last_seq, newest.c.seq, events.c.kind, events.c.data)
    joined = joined.outerjoin(newest, newest.c.search_id == searches.c.id).outerjoin(
        events, (events.c.search_id == searches.c.id) & (events.c.seq == newest.c.seq)
    )
    for row in connection.execute(joined):
        if row.seq != row.last_seq:
            yield f"search {row.id}: its newest event is {row.seq}, not {row.last_seq}"
        elif State(row.state) in TERMINAL and (row.kind != STATE or f'"{row.state}"' not in row.data):
            yield f"search {row.id}: its last event does not tell that it is {row.state}"


def _plans(connection: Connection) -> Iterator[str]:
    """Every plan has the bytes that were stored."""
    query = select(plans.c.id, plans.c.body, plans.c.context, plans.c.checksum)
    for row in connection.execution_options(yield_per=BATCH).execute(query):
        if StoredPlan(row.id, row.body, row.context).checksum != row.checksum:
            yield f"plan {row.id}: its checksum is wrong"


def counts(engine: Engine) -> dict[str, int]:
    """Searches by state, and plans."""
    by_state = select(searches.c.state, func.count()).group_by(searches.c.state)
    with reading(engine) as connection:
        found = {state: 0 for state in State} | {State(state): count for state, count in connection.execute(by_state)}
        plan_count = connection.execute(select(func.count()).select_from(plans)).scalar_one()
    return {**{f"searches {state}": count for state, count in found.items()}, "plans": plan_count}
