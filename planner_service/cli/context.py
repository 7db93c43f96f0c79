"""What every command shares: two consoles, and the place where the work is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from planner_service.cli.backends import LocalBackend, RemoteBackend
from planner_service.client import PlannerClient

WIDE = 150


def console(stderr: bool = False) -> Console:
    """A console; output that is not a terminal is wide enough for every table."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(stderr=stderr, width=width)


def server_url(server: str | None) -> str | None:
    """--server, else PLANNER_URL, else none: in this process."""
    return server or os.environ.get("PLANNER_URL") or None


@contextmanager
def backend(server: str | None) -> Iterator[LocalBackend | RemoteBackend]:
    """The solver in this process, or the server."""
    url = server_url(server)
    if url is None:
        yield LocalBackend()
        return
    with PlannerClient(url) as client:
        yield RemoteBackend(client)


def write_raw(content: bytes) -> None:
    """`--json`: the very bytes that HTTP returns, and a line end."""
    sys.stdout.buffer.write(content + b"\n")
    sys.stdout.buffer.flush()
