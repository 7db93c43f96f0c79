"""Eviction: what is old, and then what is oldest while the store is too large, goes; what somebody needs stays.

Kept are searches that have not ended, that carry a label, note or tag or hold a pinned plan, and plans that a search or a
pin needs. Each round is a short transaction, so that nobody waits long.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, and_, delete, exists, func, select

from planner_service.states import TERMINAL
from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.graves import bury_plans, bury_searches, unneeded
from planner_service.store.tables import idempotency_keys, pins, plans, search_plans, search_tags, searches

ROUND = 100
SIZE_ROUND = 10
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Evicted:
    """How many went, and the bytes of what is left."""

    searches: int
    plans: int
    size_bytes: int


class EvictionStore:
    """Makes room."""

    def __init__(self, engine: Engine, clock: Clock = now_us) -> None:
        self._engine = engine
        self._clock = clock

    def size_bytes(self) -> int:
        """Bytes of all plans, requests and results (indexes and logs come on top)."""
        texts = func.coalesce(func.length(searches.c.result), 0) + func.length(searches.c.document)
        with reading(self._engine) as connection:
            of_plans = connection.execute(select(func.coalesce(func.sum(plans.c.size_bytes), 0))).scalar_one()
            return int(of_plans) + int(connection.execute(select(func.coalesce(func.sum(texts), 0))).scalar_one())

    def evict(self, max_age_s: float, max_bytes: int, idempotency_s: float = 86_400.0) -> Evicted:
        """Evicts by age, then by size; 0 means no limit."""
        gone_searches = gone_plans = 0
        with writing(self._engine) as connection:
            old = self._clock() - int(idempotency_s * MICROSECONDS)
            connection.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at_us < old))
        if max_age_s > 0:
            before_us = self._clock() - int(max_age_s * MICROSECONDS)
            gone_searches, gone_plans = self._all_rounds(before_us)
        while max_bytes > 0 and self.size_bytes() > max_bytes:
            of_searches, of_plans = self._round(self._clock() + 1, SIZE_ROUND)
            if not of_searches and not of_plans:
                break
            gone_searches, gone_plans = gone_searches + of_searches, gone_plans + of_plans
        return Evicted(gone_searches, gone_plans, self.size_bytes())

    def _all_rounds(self, before_us: int) -> tuple[int, int]:
        """Everything that may go and is older."""
        totals = (0, 0)
        while (gone := self._round(before_us, ROUND)) != (0, 0):
            totals = (totals[0] + gone[0], totals[1] + gone[1])
        return totals

    def _round(self, before_us: int, most: int) -> tuple[int, int]:
        """The oldest plans that nobody needs, or if there are none the oldest searches with the plans that only they need."""
        with writing(self._engine) as connection:
            loose = self._loose_plans(connection, before_us, most)
            if loose:
                bury_plans(connection, loose, self._clock())
                return 0, len(loose)
            ended = self._old_searches(connection, before_us, most)
            bury_searches(connection, ended, self._clock())
            return len(ended), 0

    def _loose_plans(self, connection: Connection, before_us: int, most: int) -> list[str]:
        query = select(plans.c.id).where(plans.c.created_at_us < before_us, *unneeded())
        query = query.order_by(plans.c.created_at_us, plans.c.id).limit(most).with_for_update(skip_locked=True)
        return [plan_id for (plan_id,) in connection.execute(query)]

    def _old_searches(self, connection: Connection, before_us: int, most: int) -> list[str]:
        tagged = exists().where(search_tags.c.search_id == searches.c.id)
        pinned = exists().where(and_(search_plans.c.search_id == searches.c.id, search_plans.c.plan_id == pins.c.plan_id))
        query = select(searches.c.id).where(
            searches.c.state.in_(list(TERMINAL)),
            searches.c.finished_at_us < before_us,
            searches.c.label.is_(None),
            searches.c.note.is_(None),
            ~tagged,
            ~pinned,
        )
        query = query.order_by(searches.c.finished_at_us, searches.c.id).limit(most).with_for_update(skip_locked=True)
        return [search_id for (search_id,) in connection.execute(query)]
