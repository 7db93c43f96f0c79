"""All SQL about plans."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Engine, Row, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.graves import is_buried
from planner_service.store.records import StoredPlan
from planner_service.store.tables import pins, plans, search_plans, tombstones


class DamagedPlan(Exception):
    """A stored plan is not what was stored."""


def insert_plans(connection: Connection, items: Iterable[StoredPlan], moment_us: int, search_id: str | None = None) -> None:
    """Adds plans inside the caller's transaction, and the search that needs them.

    A plan already known stays as it is (it is immutable); one that was evicted is back.
    """
    rows = sorted((_row(plan, moment_us) for plan in items), key=lambda row: str(row["id"]))
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(plans).on_conflict_do_nothing(index_elements=["id"]), rows)
    ids = [str(row["id"]) for row in rows]
    connection.execute(delete(tombstones).where(tombstones.c.id.in_(ids)))
    if search_id is not None:
        links = [{"search_id": search_id, "plan_id": plan_id} for plan_id in dict.fromkeys(ids)]
        connection.execute(dialect.insert(search_plans).on_conflict_do_nothing(), links)


class PlanStore:
    """Reads, adds and pins plans."""

    def __init__(self, engine: Engine, clock: Clock = now_us) -> None:
        self._engine = engine
        self._clock = clock

    def put(self, items: Iterable[StoredPlan]) -> None:
        """Adds plans that are not known yet."""
        with writing(self._engine) as connection:
            insert_plans(connection, items, self._clock())

    def get(self, plan_id: str) -> StoredPlan | None:
        """The plan with this id; raises `DamagedPlan` when its checksum is wrong."""
        with reading(self._engine) as connection:
            row = connection.execute(select(plans).where(plans.c.id == plan_id)).first()
        return _checked(row) if row else None

    def gone(self, plan_id: str) -> bool:
        """Whether a plan with this id was evicted."""
        with reading(self._engine) as connection:
            return is_buried(connection, plan_id)

    def pin(self, plan_id: str, reason: str) -> bool:
        """Keeps a plan for a named reason; False when there is no such plan."""
        with writing(self._engine) as connection:
            found = connection.execute(select(plans.c.id).where(plans.c.id == plan_id).with_for_update(read=True)).first()
            if found is None:
                return False
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            row = {"plan_id": plan_id, "reason": reason, "created_at_us": self._clock()}
            connection.execute(dialect.insert(pins).on_conflict_do_nothing(), [row])
            return True

    def unpin(self, plan_id: str, reason: str) -> bool:
        """Takes a reason away; False when it was not there."""
        with writing(self._engine) as connection:
            matches = (pins.c.plan_id == plan_id, pins.c.reason == reason)
            return connection.execute(delete(pins).where(*matches)).rowcount == 1

    def pins(self, plan_id: str) -> tuple[str, ...]:
        """Why a plan is kept, beside the searches that refer to it."""
        query = select(pins.c.reason).where(pins.c.plan_id == plan_id).order_by(pins.c.reason)
        with reading(self._engine) as connection:
            return tuple(reason for (reason,) in connection.execute(query))


def _row(plan: StoredPlan, moment_us: int) -> dict[str, object]:
    return {
        "id": plan.id,
        "body": plan.body,
        "context": plan.context,
        "created_at_us": moment_us,
        "size_bytes": len(plan.content),
        "checksum": plan.checksum,
    }


def _checked(row: Row[tuple[object, ...]]) -> StoredPlan:
    """The plan of a row, if its bytes are those that were stored."""
    plan = StoredPlan(row.id, row.body, row.context)
    if plan.checksum != row.checksum:
        raise DamagedPlan(plan.id)
    return plan
