"""`planner serve` and `planner db upgrade`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import ValidationError

from planner_service.app import create_app
from planner_service.cli.exits import UnreadableInput
from planner_service.settings import LOOPBACK_HOSTS, Settings
from planner_service.solver_port import DEFAULT_SOLVER
from planner_service.store.engine import open_engine
from planner_service.store.migrate import current_revision, upgrade

ANNOUNCEMENT = "planner serves at "
GRACEFUL_STOP_S = 3


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
        create_app(settings, solver_name), log_level="warning", timeout_graceful_shutdown=GRACEFUL_STOP_S, server_header=False
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


def upgrade_database(database: str | None) -> str | None:
    """Migrates and returns the revision."""
    engine = open_engine(read_settings(database_url=database_url(database)).database_url)
    try:
        upgrade(engine)
        return current_revision(engine)
    finally:
        engine.dispose()
