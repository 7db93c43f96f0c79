"""`planner serve` and `planner worker`."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import ValidationError

from planner_service.app import create_app
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.http_head import BoundedHead
from planner_service.services import start_jobs
from planner_service.settings import LOOPBACK_HOSTS, Settings
from planner_service.solver_port import DEFAULT_SOLVER, load_solver
from planner_service.store.engine import open_engine
from planner_service.store.migrate import upgrade

ANNOUNCEMENT = "planner serves at "
GRACEFUL_STOP_S = 3
BACKLOG = 2048


def read_settings(**given: Any) -> Settings:
    """The environment's settings, with what the command line gives in front."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise UnreadableInput("settings: " + "; ".join(lines)) from error


def database_url(database: str | None) -> str | None:
    """The URL of a database given on the command line; a plain path is a SQLite file."""
    if database is None or "://" in database:
        return database
    return f"sqlite:///{Path(database).expanduser().resolve()}"


def serve_forever(host: str | None, port: int | None, database: str | None, solver_name: str = DEFAULT_SOLVER) -> None:
    """Listens until SIGINT or SIGTERM; says on stdout where, once the port is taken."""
    settings = read_settings(host=host, port=port, database_url=database_url(database))
    if settings.host not in LOOPBACK_HOSTS and not settings.allow_remote:
        raise UnreadableInput(
            f"host {settings.host}: there are no keys yet, so only {', '.join(LOOPBACK_HOSTS)} without PLANNER_ALLOW_REMOTE=true"
        )
    listener = listen(settings.host, settings.port)
    print(f"{ANNOUNCEMENT}{address_of(listener)}", flush=True)
    config = uvicorn.Config(
        create_app(settings, solver_name),
        log_level="warning",
        timeout_graceful_shutdown=GRACEFUL_STOP_S,
        server_header=False,
        access_log=False,
        backlog=BACKLOG,
        http=BoundedHead,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise UnreadableInput(f"cannot listen at {host} port {port}: {error.strerror or error}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def work_forever(database: str | None, slots: int | None, solver_name: str = DEFAULT_SOLVER) -> None:
    """Runs queued searches of the database until SIGINT or SIGTERM, without an HTTP interface."""
    settings = read_settings(database_url=database_url(database), concurrent_searches=slots)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    engine = open_engine(settings.database_url)
    try:
        upgrade(engine)
        runner, housekeeper = start_jobs(engine, settings, solver_name, load_solver(solver_name).versions())
        print(f"planner works with {settings.concurrent_searches} slots", flush=True)
        stopping.wait()
        housekeeper.stop()
        runner.stop()
    finally:
        engine.dispose()
