"""Fixtures of the service's tests: a server in this process on a fresh database, with a solver that does as it is told."""

from __future__ import annotations

import time

import pytest
from fastapi.testclient import TestClient

from planner_service.app import create_app
from planner_service.settings import Settings
from tests.service.fake_solver import NAME
from tests.service.servers import running_server

TERMINAL = ("done", "failed", "cancelled")


@pytest.fixture
def settings(tmp_path):
    """Small limits, so that tests reach them quickly."""
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'planner.db'}",
        max_body_bytes=200_000,
        concurrent_searches=2,
        search_max_time_s=20.0,
        search_kill_grace_s=0.5,
        search_max_memory_bytes=2**31,
        evaluation_max_time_s=2.0,
        heartbeat_s=0.2,
        lease_s=2.0,
    )


@pytest.fixture
def client(settings):
    """A client of a running application; no answer may be a server error."""
    with TestClient(create_app(settings, NAME), raise_server_exceptions=False) as made:
        yield made


@pytest.fixture
def problem(tmp_path):
    """A problem for the fake solver, with a `behaviour`."""

    def make(**behaviour):
        search = behaviour.pop("search", None)
        document = {"model": {"preset": "x"}, "workload": {}, "cluster": {}, "behaviour": behaviour}
        return document if search is None else {**document, "search": search}

    return make


@pytest.fixture
def ended(client):
    """Waits until a search has ended and returns its document."""

    def wait(search_id, timeout_s=20.0):
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            document = client.get(f"/v1/searches/{search_id}").json()
            if document["state"] in TERMINAL:
                return document
            time.sleep(0.05)
        raise AssertionError(f"still {document['state']}")

    return wait


@pytest.fixture
def live_server(tmp_path):
    """The URL of a server in a process of its own, with the fake solver and default limits."""
    with running_server(f"sqlite:///{tmp_path / 'live.db'}") as (url, _):
        yield url
