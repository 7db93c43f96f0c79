"""Engines for the two databases, and the two kinds of transaction: `reading` and `writing`.

SQLite: WAL, synchronous FULL (an accepted search survives a power cut), and BEGIN IMMEDIATE for every writing
transaction, because a transaction that first reads and then writes would otherwise fail with "database is locked".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url

BUSY_TIMEOUT_S = 10.0
WRITES = {"planner_writes": True}


def open_engine(database_url: str) -> Engine:
    """An engine for `sqlite:///FILE` or `postgresql+psycopg://...`, ready for threads."""
    if make_url(database_url).get_backend_name() == "sqlite":
        return _sqlite(database_url)
    return create_engine(
        database_url,
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=8,
        connect_args={"connect_timeout": 10, "options": "-c lock_timeout=10s -c statement_timeout=30s"},
    )


def _sqlite(database_url: str) -> Engine:
    """SQLite with our pragmas, transactions begun by us instead of the driver."""
    path = make_url(database_url).database
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        database_url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, pool_size=8, max_overflow=8
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={int(BUSY_TIMEOUT_S * 1000)}"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("planner_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads."""
    with engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may read and then write; commits on leaving, rolls back on an exception."""
    with engine.connect().execution_options(**WRITES) as connection, connection.begin():
        yield connection
