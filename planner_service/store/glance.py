"""The generation at a glance: on SQLite a statement of some microseconds, cheap enough to run where nothing may block."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, select

from planner_service.store.tables import generations

TEXT = str(select(generations.c.value).compile())


class Glance:
    """A connection of its own that only reads and never waits: readers do not block on writers in WAL mode."""

    def __init__(self, engine: Engine) -> None:
        path = engine.url.database if engine.dialect.name == "sqlite" else None
        self._connection: sqlite3.Connection | None = None
        if path is not None:
            address = f"file:{quote(str(Path(path).resolve()))}?mode=ro"
            self._connection = sqlite3.connect(address, uri=True, timeout=0.0, isolation_level=None, check_same_thread=False)

    def generation(self) -> int | None:
        """The number now, None when it takes longer to know (another database, or one that is locked this moment)."""
        if self._connection is None:
            return None
        try:
            (value,) = self._connection.execute(TEXT).fetchone()
        except sqlite3.OperationalError:
            return None
        assert isinstance(value, int)
        return value

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
