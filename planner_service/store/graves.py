"""Deleting searches and plans so that their ids are remembered: an id that was here is gone, not unknown."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, delete, exists, select
from sqlalchemy.dialects import postgresql, sqlite

from planner_service.store.generation import next_generation
from planner_service.store.tables import pins, plans, search_plans, searches, tombstones

SEARCH, PLAN = "search", "plan"


def bury_searches(connection: Connection, ids: Iterable[str], moment_us: int) -> None:
    """Deletes searches with all that is theirs alone; their plans stay until nobody needs them."""
    _bury(connection, SEARCH, list(ids), moment_us)


def bury_plans(connection: Connection, ids: Iterable[str], moment_us: int) -> None:
    """Deletes plans that nobody needs."""
    _bury(connection, PLAN, list(ids), moment_us)


def is_buried(connection: Connection, key: str) -> bool:
    """Whether a search or plan with this id was deleted."""
    return connection.execute(select(tombstones.c.id).where(tombstones.c.id == key)).first() is not None


def unneeded() -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Conditions on `plans`: no search refers to it and nobody has pinned it."""
    named = exists().where(search_plans.c.plan_id == plans.c.id)
    pinned = exists().where(pins.c.plan_id == plans.c.id)
    return ~named, ~pinned


def _bury(connection: Connection, kind: str, ids: list[str], moment_us: int) -> None:
    if not ids:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    stones = [{"id": key, "kind": kind, "gone_at_us": moment_us} for key in ids]
    connection.execute(dialect.insert(tombstones).on_conflict_do_nothing(index_elements=["id"]), stones)
    table = searches if kind == SEARCH else plans
    connection.execute(delete(table).where(table.c.id.in_(ids)))
    next_generation(connection)
