"""Databases of every earlier revision become what the newest code works with; nothing in them is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from planner_service.solver_adapter import RealSolver
from planner_service.states import State
from planner_service.store.checkup import findings
from planner_service.store.engine import open_engine, reading
from planner_service.store.events import EventStore
from planner_service.store.leases import LeaseStore
from planner_service.store.migrate import current_revision, downgrade, head_revision, upgrade
from planner_service.store.plans import PlanStore
from planner_service.store.searches import SearchStore
from planner_service.store.tables import metadata
from tests.service.postgres import new_database

DATABASES = Path(__file__).parent / "databases"
KEPT = sorted(path.name for path in DATABASES.iterdir() if path.suffix in (".sqlite3", ".sql"))
PUBLIC = ("id", "state", "problem_digest", "request_digest", "created_at_us", "finished_at_us", "progress", "result", "error")


@pytest.fixture(params=KEPT)
def old(request, tmp_path):
    """An engine on a copy of a kept database, not upgraded."""
    source = DATABASES / request.param
    if source.suffix == ".sqlite3":
        shutil.copy(source, tmp_path / "old.db")
        engine = open_engine(f"sqlite:///{tmp_path / 'old.db'}")
    else:
        engine = open_engine(new_database(request.getfixturevalue("postgres_server")))
        with engine.connect() as connection:
            connection.connection.driver_connection.execute(source.read_text(encoding="utf-8"))
            connection.connection.driver_connection.execute("SELECT pg_catalog.set_config('search_path', 'public', false)")
            connection.connection.driver_connection.commit()
    yield engine
    engine.dispose()


def rows(engine, table, columns):
    """All rows of a table, sorted."""
    with reading(engine) as connection:
        return sorted(map(tuple, connection.execute(text(f"SELECT {', '.join(columns)} FROM {table}"))), key=str)


def test_both_databases_of_a_revision_are_kept():
    """SQLite and PostgreSQL in lockstep, of every revision but the newest."""
    revisions = {name.split(".")[0] for name in KEPT}
    assert {f"{revision}.sqlite3" for revision in revisions} | {f"{revision}.postgresql.sql" for revision in revisions} == set(
        KEPT
    )
    assert "0001" in revisions


def test_everything_is_still_there(old):
    """Each search and each plan has its bytes, the schema is the newest, and the checkup finds nothing."""
    before = rows(old, "searches", PUBLIC), rows(old, "plans", ("id", "body", "context"))
    assert {State(row[1]) for row in before[0]} == set(State)
    assert current_revision(old) != head_revision()
    upgrade(old)
    assert current_revision(old) == head_revision()
    assert (rows(old, "searches", PUBLIC), rows(old, "plans", ("id", "body", "context"))) == before
    with reading(old) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    assert findings(old) == []


def test_every_plan_is_read_and_belongs_to_its_search(old):
    """Plans pass their checksum; the done search refers to all that its result names."""
    upgrade(old)
    store, plans = SearchStore(old), PlanStore(old)
    done = next(search for search in store.page(10) if search.state is State.DONE)
    result = orjson.loads(store.get(done.id).result)
    named = {result["plan"]["id"], *(entry["plan_id"] for entry in result["alternatives"])}
    for plan_id in named:
        assert orjson.loads(plans.get(plan_id).body)["id"] == plan_id
    linked = {row[1] for row in rows(old, "search_plans", ("search_id", "plan_id")) if row[0] == done.id}
    assert named <= linked
    for search in store.page(10):
        (event,) = EventStore(old).after(search.id, 0, 10)
        assert orjson.loads(event.data) == {"state": search.state}


def test_work_goes_on(old):
    """What was queued or running is claimed and ends; a new request gets an answer of the versions that answer now."""
    upgrade(old)
    store, versions = SearchStore(old), RealSolver().versions()
    waiting = {search.id for search in store.page(10) if search.state in (State.QUEUED, State.RUNNING)}
    leases = LeaseStore(old, "new", 10.0, 3, versions=versions)
    claimed = {leases.claim().id for _ in waiting}
    assert claimed == waiting
    for search_id in claimed:
        assert leases.finish(search_id, "{}", False, (), None)
        assert store.get(search_id).state is State.DONE
    assert leases.claim() is None
    assert findings(old) == []


def test_one_step_back(old):
    """Down to the revision of the kept database and up again; searches and plans are the same."""
    revision = current_revision(old)
    before = rows(old, "searches", PUBLIC), rows(old, "plans", ("id", "body", "context"))
    upgrade(old)
    downgrade(old, revision)
    assert current_revision(old) == revision
    assert (rows(old, "searches", PUBLIC), rows(old, "plans", ("id", "body", "context"))) == before
    upgrade(old)
    assert findings(old) == []
