"""A number that grows with every edit and deletion, in the transaction that makes it: copies of rows are good while it stays."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, select, update

from planner_service.store.engine import reading
from planner_service.store.tables import generations


def next_generation(connection: Connection) -> None:
    """Something that may be cached elsewhere was changed or deleted."""
    connection.execute(update(generations).values(value=generations.c.value + 1))


def read_generation(engine: Engine) -> int:
    """The number now."""
    with reading(engine) as connection:
        return connection.execute(select(generations.c.value)).scalar_one()
