"""All SQL about calibrated profiles."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from planner_service.store.clock import Clock, now_us
from planner_service.store.engine import reading, writing
from planner_service.store.generation import next_generation
from planner_service.store.tables import profiles


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A profile document as JSON text."""

    name: str
    document: str
    created_at_us: int


class ProfileStore:
    """Reads and replaces profiles."""

    def __init__(self, engine: Engine, clock: Clock = now_us) -> None:
        self._engine = engine
        self._clock = clock

    def put(self, name: str, document: str) -> None:
        """Adds a profile or replaces the one of that name; answers kept for problems that name it are dropped."""
        with writing(self._engine) as connection:
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            insert = dialect.insert(profiles).values(name=name, document=document, created_at_us=self._clock())
            changed = {"document": insert.excluded.document, "created_at_us": insert.excluded.created_at_us}
            connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=changed))
            next_generation(connection)

    def get(self, name: str) -> StoredProfile | None:
        """The profile of that name."""
        with reading(self._engine) as connection:
            row = connection.execute(select(profiles).where(profiles.c.name == name)).first()
        return StoredProfile(row.name, row.document, row.created_at_us) if row else None

    def all(self) -> list[StoredProfile]:
        """Every profile, by name."""
        with reading(self._engine) as connection:
            rows = connection.execute(select(profiles).order_by(profiles.c.name)).all()
        return [StoredProfile(row.name, row.document, row.created_at_us) for row in rows]
