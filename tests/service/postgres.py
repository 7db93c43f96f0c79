"""A real PostgreSQL for tests: PLANNER_TEST_PG_URL, else a server of our own on a free loopback port."""

from __future__ import annotations

import atexit
import glob
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text


def program(name):
    """The path of a PostgreSQL server program, newest version first, or None."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]), reverse=True)
    return found[0] if found else shutil.which(name)


def missing():
    """Why no server can be started here, or None."""
    if program("initdb") is None or program("pg_ctl") is None:
        return "initdb and pg_ctl are not installed"
    if os.geteuid() == 0 and (
        shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode
    ):
        return "running as root, and there is no user postgres to run the server as"
    return None


def as_server_user(command):
    """PostgreSQL refuses root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


@contextmanager
def own_server():
    """A server with its data in a temporary directory; yields the URL of its database `postgres`."""
    directory = Path(tempfile.mkdtemp(prefix="planner-pg-"))
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(directory / "data")
    init = [program("initdb"), "-D", data, "-U", "planner", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -c unix_socket_directories={directory}"
    start = [program("pg_ctl"), "-D", data, "-w", "-l", str(directory / "log"), "-o", options, "start"]
    try:
        for command in (init, start):
            subprocess.run(as_server_user(command), check=True, cwd=directory, stdout=subprocess.DEVNULL)
        yield f"postgresql+psycopg://planner@127.0.0.1:{port}/postgres"
    finally:
        stop = [program("pg_ctl"), "-D", data, "-m", "immediate", "stop"]
        subprocess.run(as_server_user(stop), check=False, cwd=directory, stdout=subprocess.DEVNULL)
        shutil.rmtree(directory, ignore_errors=True)


@cache
def shared_server():
    """One server for the whole test process, however many modules ask for it; it stops at the end."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(own_server())


@pytest.fixture(scope="session")
def postgres_server():
    """URL of a PostgreSQL database in which databases can be created; skips loudly when there is none."""
    given = os.environ.get("PLANNER_TEST_PG_URL")
    if given:
        return given.replace("postgresql://", "postgresql+psycopg://", 1)
    reason = missing()
    if reason is not None:
        message = f"NOT TESTED ON POSTGRESQL: {reason}, and PLANNER_TEST_PG_URL is not set"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    return shared_server()


def new_database(server_url):
    """The URL of a fresh database."""
    name = f"planner_{secrets.token_hex(6)}"
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'planner.db'}"
    return new_database(request.getfixturevalue("postgres_server"))
