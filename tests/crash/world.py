"""A server and a worker on one database, as processes that can be killed and started again."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlalchemy import func, select

from planner_service.store.engine import open_engine, reading
from planner_service.store.tables import attempts, searches
from tests.service.servers import start_server, start_worker

SETTINGS = {
    "lease_s": 4.0,
    "heartbeat_s": 0.2,
    "cancel_grace_s": 0.3,
    "search_max_attempts": 20,
    "concurrent_searches": 1,
    "store_max_age_days": 0,
}
GONE_S = 2.0


class World:
    """The processes; `children` are those that run solvers."""

    def __init__(self, database_url, solver_name):
        self.database_url = database_url
        self.solver_name = solver_name
        self.url, self.server = start_server(database_url, solver_name, **SETTINGS)
        self.worker = start_worker(database_url, solver_name, **SETTINGS)
        self.engine = open_engine(database_url)
        self.http = httpx.Client(trust_env=False, timeout=30)

    def close(self):
        """Ends everything in order."""
        self.http.close()
        self.engine.dispose()
        for process in (self.server, self.worker):
            process.send_signal(signal.SIGTERM)
        for process in (self.server, self.worker):
            process.wait(30)
            process.stdout.close()

    def post(self, problem):
        """The document that acknowledges a search."""
        response = self.http.post(f"{self.url}/v1/searches", json=problem)
        assert response.status_code in (200, 202), response.text
        return response.json()

    def get(self, search_id):
        """A search, parsed and as bytes."""
        response = self.http.get(f"{self.url}/v1/searches/{search_id}")
        assert response.status_code == 200, response.text
        return response.json(), response.content

    def newest_start_us(self):
        """When an owner last started a search."""
        with reading(self.engine) as connection:
            return connection.execute(select(func.max(attempts.c.started_at_us))).scalar()

    def startable(self):
        """How many searches wait or have an owner that is gone."""
        alive = {str(process.pid) for process in (self.server, self.worker)}
        with reading(self.engine) as connection:
            rows = connection.execute(select(searches.c.lease_owner).where(searches.c.finished_at_us.is_(None))).scalars()
            return sum(owner is None or owner.split("-")[1] not in alive for owner in rows)

    def children(self, process):
        """Process ids of the living children of a server or worker."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent_of(pid) == process.pid]

    def kill_process(self, role):
        """kill -9 of the server or the worker; returns how long its children outlived it."""
        process = getattr(self, role)
        orphans = self.children(process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        return seconds_until_gone(orphans)

    def restart(self, role):
        """Starts what was killed."""
        if role == "server":
            self.url, self.server = start_server(self.database_url, self.solver_name, **SETTINGS)
        else:
            self.worker = start_worker(self.database_url, self.solver_name, **SETTINGS)


def parent_of(pid):
    """The parent's id; None when the process is gone or waits to be collected."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[1])


def seconds_until_gone(pids):
    """How long it takes until none of these processes lives."""
    began_s = time.monotonic()
    while any(parent_of(pid) is not None for pid in pids):
        assert time.monotonic() - began_s < GONE_S, f"orphans {GONE_S} s after the death of their parent: {pids}"
        time.sleep(0.01)
    return time.monotonic() - began_s


@contextmanager
def running_world(database_url, solver_name):
    """A world that is closed at the end."""
    world = World(database_url, solver_name)
    try:
        yield world
    finally:
        world.close()
