"""Servers in processes of their own, with the fake solver, for tests that need sockets, signals and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx

from tests.service.fake_solver import NAME

PROGRAM = "import sys; from planner_service.cli.serving import serve_forever; serve_forever(None, 0, sys.argv[1], sys.argv[2])"


def start_server(database_url, **settings):
    """Starts a server; returns its URL and its process once it is ready."""
    path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        **{f"PLANNER_{name.upper()}": str(value) for name, value in settings.items()},
    }
    command = [sys.executable, "-c", PROGRAM, database_url, NAME]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    line = process.stdout.readline()
    url = line.rpartition(" ")[2].strip()
    assert url.startswith("http://"), line
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return url, process
        except httpx.HTTPError:
            time.sleep(0.02)
    raise AssertionError("the server did not become ready")


@contextmanager
def running_server(database_url, **settings):
    """A server that is stopped at the end; yields URL and process."""
    url, process = start_server(database_url, **settings)
    try:
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()
