"""Faults of the database while a search runs, and limits of the server that go before those of the request."""

from __future__ import annotations

import signal
import threading
import time

import orjson
import pytest
from sqlalchemy import create_engine, make_url, text

from planner_service.states import TERMINAL, State
from planner_service.store.checkup import findings
from planner_service.store.engine import open_engine, writing
from planner_service.store.migrate import upgrade
from planner_service.store.records import NewSearch
from planner_service.store.searches import SearchStore
from tests.crash.steady_solver import NAME as STEADY
from tests.crash.steady_solver import OPTIMUM
from tests.service.fake_solver import NAME as FAKE
from tests.service.fake_solver import FakeSolver
from tests.service.postgres import new_database, postgres_server
from tests.service.servers import start_worker

__all__ = ["postgres_server"]
SETTINGS = {"lease_s": 30, "heartbeat_s": 0.1, "concurrent_searches": 1, "search_max_attempts": 1}


def queued(store, search=None, **behaviour):
    """A search in the queue."""
    problem = {"model": {}, "workload": {}, "cluster": {}, "behaviour": behaviour}
    problem |= {} if search is None else {"search": search}
    checked = FakeSolver().check(problem)
    new = NewSearch(orjson.dumps(problem).decode(), checked.problem_digest, checked.request_digest, versions=checked.versions)
    return store.submit(new).search.id


def until(condition, timeout_s=60.0):
    """Waits until the condition gives something."""
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.05)
    return found


def ended(store, search_id):
    """The search once it has ended."""
    return until(lambda: (found := store.get(search_id)).state in TERMINAL and found)


class Place:
    """A migrated database with a worker on it."""

    def __init__(self, url, solver=STEADY, **settings):
        self.url, self.solver, self.settings = url, solver, SETTINGS | settings

    def __enter__(self):
        self.engine = open_engine(self.url)
        upgrade(self.engine)
        self.worker = start_worker(self.url, self.solver, **self.settings)
        return SearchStore(self.engine), self.engine

    def __exit__(self, *_):
        self.worker.send_signal(signal.SIGTERM)
        self.worker.wait(60)
        self.worker.stdout.close()
        self.engine.dispose()


def test_connections_are_cut(postgres_server):
    """Every connection of the worker is ended, again and again: its only allowed attempt goes on and ends well."""
    url = new_database(postgres_server)
    name = make_url(url).database
    cut = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()")
    other = create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with Place(url) as (store, engine):
        search_id = queued(store, name="cut", steps=20, step_s=0.1)
        until(lambda: orjson.loads(store.get(search_id).progress)["total"])
        for _ in range(8):
            with other.connect() as connection:
                connection.execute(cut, {"name": name})
            time.sleep(0.25)
        engine.dispose()
        found = ended(store, search_id)
        assert found.state is State.DONE
        assert orjson.loads(found.result)["value"] == OPTIMUM
        assert findings(engine) == []
    other.dispose()


def test_another_writer_holds_the_database(tmp_path):
    """SQLite is locked for two seconds around the end of a search: nothing is lost."""
    with Place(f"sqlite:///{tmp_path / 'held.db'}") as (store, engine):
        search_id = queued(store, name="held", steps=4, step_s=0.2)
        until(lambda: orjson.loads(store.get(search_id).progress)["total"])
        released = threading.Event()

        def hold():
            with writing(engine):
                released.wait(2.0)

        holder = threading.Thread(target=hold)
        holder.start()
        holder.join()
        assert ended(store, search_id).state is State.DONE
        assert findings(engine) == []


@pytest.mark.parametrize("asked", [{"time_limit_s": 3600.0}, {"time_limit_s": None}])
def test_the_server_limits_time(tmp_path, asked):
    """A request may ask for an hour or for no limit; the server's half second goes before."""
    with Place(f"sqlite:///{tmp_path / 'time.db'}", search_max_time_s=0.5) as (store, _):
        search_id = queued(store, search=asked, name="long", steps=1, step_s=60)
        found = ended(store, search_id)
        assert found.state is State.DONE
        assert orjson.loads(found.result)["stopped_by"] == "time"


def test_the_server_limits_memory(tmp_path):
    """A search that takes all it can get fails with a code; the worker goes on."""
    with Place(f"sqlite:///{tmp_path / 'memory.db'}", FAKE, search_max_memory_bytes=2**29) as (store, _):
        hungry = queued(store, memory=True)
        assert orjson.loads(ended(store, hungry).error)["code"] == "memory_limit"
        assert ended(store, queued(store, name="next")).state is State.DONE
