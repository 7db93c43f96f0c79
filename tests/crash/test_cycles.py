"""Ten kill -9 cycles on each database; `python -m tests.crash.cycles` runs as many as wanted."""

from __future__ import annotations

import json

import pytest

from planner_service.store.engine import open_engine, writing
from planner_service.store.events import log_event
from planner_service.store.leases import LeaseStore
from planner_service.store.migrate import upgrade
from planner_service.store.records import NewSearch
from planner_service.store.searches import SearchStore
from planner_service.store.tables import searches
from tests.crash import cycles
from tests.crash.batch import run_batch
from tests.crash.witness import Witness
from tests.service.postgres import database_url, postgres_server

__all__ = ["database_url", "postgres_server"]
CANCEL_S, RESTART_S = 1.0, 10.0
BUSY_MACHINE = 3.0
"""room for a machine that runs other tests beside this one"""


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_ten_kills(database_url):
    """Nothing acknowledged is lost, doubled or made worse; no orphans; the database is whole; times are kept."""
    measured = run_batch(database_url, 10, seed=5, cancels=3)
    assert measured.cycles == sum(measured.kills.values()) == 10
    assert measured.searches >= 3
    assert max(measured.cancel_s) <= CANCEL_S * BUSY_MACHINE
    assert max(measured.restart_s, default=0.0) <= RESTART_S * BUSY_MACHINE


@pytest.mark.ci
@pytest.mark.timeout(300)
def test_kills_of_the_solver_itself(tmp_path):
    """Killed and restarted searches have the very answer of undisturbed ones."""
    assert run_batch(f"sqlite:///{tmp_path / 'real.db'}", 4, seed=3, real=True).cycles == 4


@pytest.fixture
def witness(tmp_path):
    """A witness of one running search in a database of its own, and the tools to change that search."""
    engine = open_engine(f"sqlite:///{tmp_path / 'w.db'}")
    upgrade(engine)
    search = SearchStore(engine).submit(NewSearch("{}", "p" * 64, "r" * 64)).search
    leases = LeaseStore(engine, "a-1-1-1", 60.0, 3)
    leases.claim()
    made = Witness(engine)
    made.accept("one", {"id": search.id})
    yield made, search.id, leases, engine
    engine.dispose()


def progress(incumbent, bound, done=1):
    """Progress as a solver tells it."""
    gap = (incumbent - bound) / incumbent
    return json.dumps({"done": done, "total": 9, "incumbent": incumbent, "bound": bound, "gap": gap})


@pytest.mark.parametrize("second", [progress(3.0, 1.0), progress(2.0, 0.5), progress(2.0, 1.0, done=0)])
def test_the_witness_sees_worse_progress(witness, second):
    """A greater incumbent, a smaller bound, fewer closed cells."""
    made, search_id, leases, _ = witness
    leases.beat(search_id, progress(2.0, 1.0))
    made.follow()
    leases.beat(search_id, second)
    with pytest.raises(AssertionError):
        made.follow()


def test_the_witness_sees_a_second_end(witness):
    """Another result, a lost search, an event after the end, damage."""
    made, search_id, leases, engine = witness
    leases.finish(search_id, '{"a":1}', True, (), None)
    made.look(search_id, {"state": "done", "progress": json.loads(progress(2.0, 1.0))}, b"1")
    made.follow()
    made.check_database()
    with pytest.raises(AssertionError, match="has changed"):
        made.look(search_id, {"state": "done", "progress": json.loads(progress(2.0, 1.0))}, b"2")
    with pytest.raises(AssertionError, match="another id"):
        made.accept("one", {"id": "other"})
    with writing(engine) as connection:
        log_event(connection, search_id, 9, "state", '{"state":"running"}', 1)
    with pytest.raises(AssertionError, match="after its end"):
        made.follow()
    with writing(engine) as connection:
        connection.execute(searches.update().values(result=None))
    with pytest.raises(AssertionError, match="without a result"):
        made.check_database()


def test_runs_are_resumed(tmp_path, monkeypatch):
    """Batches that are in the results file are not run again; a broken promise makes the exit code 1."""
    ran = []

    def pretend(url, count, seed, real):
        ran.append((count, seed, real))
        if seed == 1002:
            raise AssertionError("lost")
        return cycles_measured(count)

    monkeypatch.setattr(cycles, "run_batch", pretend)
    monkeypatch.setattr(cycles, "BATCH", 10)
    arguments = ["--engine", "sqlite", "--output", str(tmp_path / "r.jsonl"), "--resume"]
    assert cycles.main([*arguments, "--cycles", "10"]) == 0
    assert cycles.main([*arguments, "--cycles", "25"]) == 1
    assert [(count, seed) for count, seed, _ in ran] == [(10, 1001), (10, 1002), (5, 1003)]
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [line["broken"] for line in lines] == [None, "lost", None]
    assert cycles.summary("sqlite", lines)["cancel_s"] == {"count": 2, "p50": 0.2, "p99": 0.2, "max": 0.2}


def cycles_measured(count):
    """A batch that went well."""
    from tests.crash.batch import Measured

    return Measured(cycles=count, searches=1, cancel_s=[0.2])
