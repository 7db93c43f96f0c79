"""All SQL about plans."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.records import StoredPlan
from planner_service.store.tables import plans


def insert_plans(connection: Connection, items: Iterable[StoredPlan], moment_us: int) -> None:
    """Adds plans inside the caller's transaction; a plan already known stays as it is (it is immutable)."""
    rows = [{"id": plan.id, "body": plan.body, "context": plan.context, "created_at_us": moment_us} for plan in items]
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(plans).on_conflict_do_nothing(index_elements=["id"])
    connection.execute(statement, sorted(rows, key=lambda row: str(row["id"])))


class PlanStore:
    """Reads and adds plans."""

    def __init__(self, engine: Engine, clock: Clock = now_us) -> None:
        self._engine = engine
        self._clock = clock

    def put(self, items: Iterable[StoredPlan]) -> None:
        """Adds plans that are not known yet."""
        with writing(self._engine) as connection:
            insert_plans(connection, items, self._clock())

    def get(self, plan_id: str) -> StoredPlan | None:
        """The plan with this id."""
        with reading(self._engine) as connection:
            row = connection.execute(select(plans).where(plans.c.id == plan_id)).first()
        return StoredPlan(row.id, row.body, row.context) if row else None
