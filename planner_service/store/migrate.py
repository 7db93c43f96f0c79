"""Brings a database to the newest schema; safe when several servers start at once."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from planner_service.store.engine import reading, writing

MIGRATION_LOCK = 7_016_996_765
"""Key of the PostgreSQL advisory lock (SQLite needs none: the transaction itself excludes other writers)."""


def scripts_directory() -> Path:
    """The migrations: inside an installed wheel, else beside the package in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parent / "migrations"


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration without an ini file; `connection` is handed to env.py."""
    config = Config()
    config.set_main_option("script_location", str(scripts_directory()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def head_revision() -> str | None:
    """The newest revision this code knows."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def current_revision(engine: Engine) -> str | None:
    """The revision the database is at, None for an empty one."""
    with reading(engine) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Runs the missing migrations in one transaction, other servers waiting meanwhile."""
    if revision == "head" and current_revision(engine) == head_revision():
        return
    with writing(engine) as connection:
        _lock(connection)
        command.upgrade(alembic_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Takes migrations back, for tests and emergencies."""
    with writing(engine) as connection:
        _lock(connection)
        command.downgrade(alembic_config(connection), revision)


def _lock(connection: Connection) -> None:
    """Held until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
