"""The starts of searches and how they ended; what a poisoned search leaves for whoever looks into it."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import Connection, Engine, Row, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from planner_service.store.clock import iso_time
from planner_service.store.engine import reading
from planner_service.store.records import Reproduction
from planner_service.store.tables import attempts, checkpoints, reproductions, searches

LOST = "lost: its owner stopped renewing the lease"


def begin_attempt(connection: Connection, search_id: str, owner: str, moment_us: int) -> int:
    """Notes a start and returns its number; one that was still open was lost with its owner."""
    end_attempt(connection, search_id, LOST, moment_us)
    last = connection.execute(select(func.max(attempts.c.number)).where(attempts.c.search_id == search_id)).scalar()
    number = int(last or 0) + 1
    values = {"search_id": search_id, "number": number, "owner": owner, "started_at_us": moment_us}
    connection.execute(attempts.insert().values(**values))
    return number


def end_attempt(connection: Connection, search_id: str, ending: str, moment_us: int) -> None:
    """Notes how the open start ended."""
    still_open = (attempts.c.search_id == search_id, attempts.c.ended_at_us.is_(None))
    connection.execute(update(attempts).where(*still_open).values(ended_at_us=moment_us, ending=ending))


def store_reproduction(connection: Connection, search_id: str, moment_us: int) -> None:
    """Keeps the request, the versions, the last progress and every ending of a search that is given up."""
    query = select(searches.c.document, searches.c.versions, searches.c.progress).where(searches.c.id == search_id)
    search = connection.execute(query).one()
    found = connection.execute(select(checkpoints).where(checkpoints.c.search_id == search_id)).first()
    starts = connection.execute(select(attempts).where(attempts.c.search_id == search_id).order_by(attempts.c.number))
    document = {
        "search_id": search_id,
        "versions": orjson.loads(search.versions) if search.versions.startswith("{") else None,
        "problem": orjson.loads(search.document),
        "progress": orjson.loads(search.progress),
        "best_layout": orjson.loads(found.layout) if found is not None and found.layout else None,
        "attempts": [_attempt(row) for row in starts],
    }
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    row = {"search_id": search_id, "body": orjson.dumps(document).decode(), "created_at_us": moment_us}
    connection.execute(dialect.insert(reproductions).on_conflict_do_nothing(), [row])


def _attempt(row: Row[Any]) -> dict[str, Any]:
    ended = None if row.ended_at_us is None else iso_time(row.ended_at_us)
    return {"number": row.number, "started_at": iso_time(row.started_at_us), "ended_at": ended, "ending": row.ending}


class ReproductionStore:
    """Reads what poisoned searches left."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, search_id: str) -> Reproduction | None:
        """The reproduction of a poisoned search."""
        with reading(self._engine) as connection:
            row = connection.execute(select(reproductions).where(reproductions.c.search_id == search_id)).first()
        return None if row is None else Reproduction(row.search_id, row.body, row.created_at_us)

    def ids(self) -> list[str]:
        """Searches that have one, newest first."""
        query = select(reproductions.c.search_id).order_by(reproductions.c.created_at_us.desc(), reproductions.c.search_id)
        with reading(self._engine) as connection:
            return [search_id for (search_id,) in connection.execute(query)]
