"""kill -9 at random moments: no accepted search is lost, none ends twice, no child outlives its server."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from planner_service.store.engine import open_engine, reading
from tests.service.postgres import database_url, postgres_server
from tests.service.servers import running_server, start_server

__all__ = ["database_url", "postgres_server"]
KILLS = 8
LEASE_S = 1.5


def problem(name, **behaviour):
    """A search that runs for half a second."""
    return {"model": {}, "workload": {}, "cluster": {}, "behaviour": {"name": name, "steps": 5, "step_s": 0.1, **behaviour}}


def kill(process):
    """As the out-of-memory killer does it."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.ci
@pytest.mark.timeout(240)
def test_kill_the_server_at_random(database_url):
    """Every id that a client was given ends done, with one result that never changes."""
    generator = random.Random(11)
    accepted, results = {}, {}
    for round_number in range(KILLS):
        url, process = start_server(database_url, lease_s=LEASE_S, heartbeat_s=0.3, concurrent_searches=2)
        end_s = time.monotonic() + generator.uniform(0.1, 1.5)
        while time.monotonic() < end_s:
            name = f"{round_number}-{generator.randrange(4)}"
            response = httpx.post(f"{url}/v1/searches", json=problem(name), trust_env=False)
            assert response.status_code in (200, 202)
            accepted.setdefault(name, response.json()["id"])
            assert response.json()["id"] == accepted[name]
            look(url, accepted, results)
            time.sleep(0.05)
        kill(process)
    with running_server(database_url, lease_s=LEASE_S) as (url, _):
        end_s = time.monotonic() + 90
        while len(results) < len(accepted) and time.monotonic() < end_s:
            look(url, accepted, results)
            time.sleep(0.2)
    assert set(results) == set(accepted)
    check_integrity(database_url)


def look(url, accepted, results):
    """Reads every accepted search; a result once seen stays as it is."""
    for name, search_id in accepted.items():
        response = httpx.get(f"{url}/v1/searches/{search_id}", trust_env=False)
        assert response.status_code == 200
        document = response.json()
        assert document["state"] in ("queued", "running", "done")
        if document["state"] == "done":
            assert results.setdefault(name, response.content) == response.content
            plan_id = document["result"]["plan"]["id"]
            assert httpx.get(f"{url}/v1/plans/{plan_id}", trust_env=False).status_code == 200
        else:
            assert name not in results


def check_integrity(database_url):
    """SQLite's own check."""
    if database_url.startswith("sqlite"):
        engine = open_engine(database_url)
        with reading(engine) as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
        engine.dispose()


def test_the_child_dies_with_its_server(tmp_path):
    """Two seconds after kill -9 of the server its child is gone, even one that computes without listening."""
    count = tmp_path / "runs"
    url, process = start_server(f"sqlite:///{tmp_path / 'db'}")
    httpx.post(f"{url}/v1/searches", json=problem("x", steps=1, step_s=120, deaf=True, count=str(count)), trust_env=False)
    wait_for(lambda: count.exists() and count.read_text().endswith("\n"), 20)
    child = int(count.read_text())
    assert Path(f"/proc/{child}").exists()
    kill(process)
    wait_for(lambda: not Path(f"/proc/{child}").exists(), 2)


def test_a_new_server_takes_over_at_once(tmp_path):
    """The successor on the same machine does not wait for the lease of the dead one."""
    database, count = f"sqlite:///{tmp_path / 'db'}", tmp_path / "runs"
    url, process = start_server(database, lease_s=600)
    document = problem("x", steps=1, step_s=8, count=str(count))
    search_id = httpx.post(f"{url}/v1/searches", json=document, trust_env=False).json()["id"]
    wait_for(count.exists, 20)
    kill(process)
    with running_server(database, lease_s=600) as (url, _):
        began_s = time.monotonic()
        answer = httpx.get(f"{url}/v1/searches/{search_id}", headers={"Prefer": "wait=30"}, timeout=40, trust_env=False).json()
        assert answer["state"] == "done"
        assert time.monotonic() - began_s < 30  # far below the lease of 600 s, with room for a busy machine
    assert len(count.read_text().splitlines()) == 2


def test_sigterm_returns_the_search_to_the_queue(tmp_path):
    """A server that is stopped kills its child and gives the search back without counting the attempt."""
    database, count = f"sqlite:///{tmp_path / 'db'}", tmp_path / "runs"
    with running_server(database) as (url, _):
        document = problem("x", steps=1, step_s=120, deaf=True, count=str(count))
        search_id = httpx.post(f"{url}/v1/searches", json=document, trust_env=False).json()["id"]
        wait_for(count.exists, 20)
        time.sleep(0.2)
    engine = open_engine(database)
    with reading(engine) as connection:
        row = connection.execute(text("SELECT state, attempts FROM searches WHERE id = :id"), {"id": search_id}).one()
    engine.dispose()
    assert tuple(row) == ("queued", 0)


def test_a_child_killed_from_outside_is_replaced(tmp_path):
    """The out-of-memory killer takes the child: the search runs again and ends."""
    count = tmp_path / "runs"
    with running_server(f"sqlite:///{tmp_path / 'db'}") as (url, _):
        document = problem("x", steps=1, step_s=1.5, count=str(count))
        search_id = httpx.post(f"{url}/v1/searches", json=document, trust_env=False).json()["id"]
        wait_for(lambda: count.exists() and count.read_text().endswith("\n"), 20)
        os.kill(int(count.read_text()), signal.SIGKILL)
        answer = httpx.get(f"{url}/v1/searches/{search_id}", headers={"Prefer": "wait=30"}, timeout=40, trust_env=False).json()
        assert answer["state"] == "done"
    assert len(count.read_text().splitlines()) == 2


def wait_for(condition, timeout_s):
    """Polls until the condition holds."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.02)
