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

SERVE = "import sys; from planner_service.cli.serving import serve_forever; serve_forever(None, 0, sys.argv[1], sys.argv[2])"
WORK = "import sys; from planner_service.cli.serving import work_forever; work_forever(sys.argv[1], None, sys.argv[2])"


def start_process(program, arguments, settings):
    """Starts Python with the settings in its environment; its stdout can be read."""
    path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        **{f"PLANNER_{name.upper()}": str(value) for name, value in settings.items()},
    }
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def start_worker(database_url, solver_name=NAME, **settings):
    """Starts a worker; returns its process once its slots run."""
    process = start_process(WORK, [database_url, solver_name], settings)
    line = process.stdout.readline()
    assert line.startswith("planner works"), line
    return process


def start_server(database_url, solver_name=NAME, **settings):
    """Starts a server; returns its URL and its process once it is ready."""
    process = start_process(SERVE, [database_url, solver_name], settings)
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
