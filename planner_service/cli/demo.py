"""`planner demo`: the whole way over HTTP in one command."""

from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape

from planner_service.cli.exits import Exit, UnreadableInput, search_exit
from planner_service.cli.inputs import load_document
from planner_service.cli.progress import ProgressLine
from planner_service.cli.render_search import render_search
from planner_service.cli.serving import ANNOUNCEMENT
from planner_service.client import PlannerClient, ServiceUnreachable

EXAMPLE = "llama-3.1-70b-mixed.yaml"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0


def run_demo(out: Console, errors: Console, problem: str | None, keep: bool) -> Exit:
    """Starts a service, posts the problem, shows the answer and the equivalent curl, stops the service."""
    source = problem or str(example_path())
    document = load_document(source)
    with tempfile.TemporaryDirectory(prefix="planner-demo-") as directory, service(Path(directory) / "planner.db") as url:
        out.print(f"service at {url}, a new SQLite database behind it", highlight=False)
        out.print(f"POST {url}/v1/searches with {escape(Path(source).name)}", highlight=False, soft_wrap=True)
        with PlannerClient(url) as client:
            began_s = time.monotonic()
            with ProgressLine(errors) as line:
                first = client.create_search(document)
                content = client.follow(first, lambda search: line.update(search["progress"], search["state"]))
            search = orjson.loads(content)
            out.print(f"search {search['id']} {search['state']} after {time.monotonic() - began_s:.1f} s\n", highlight=False)
        render_search(out, errors, search)
        print_curl(out, url, document, keep)
        if keep:
            wait_for_interrupt(out)
    out.print("service stopped" if not keep else "")
    return search_exit(search, remote=True)


def example_path() -> Path:
    """The packaged example: inside an installed wheel, else in the source checkout."""
    package = Path(__file__).resolve().parent.parent
    for directory in (package / "_examples", package.parent / "examples"):
        if (directory / EXAMPLE).is_file():
            return directory / EXAMPLE
    raise UnreadableInput(f"the packaged example {EXAMPLE} is missing; give --problem FILE")


def print_curl(out: Console, url: str, document: dict[str, Any], keep: bool) -> None:
    """The command that asks the same over HTTP, ready to be pasted."""
    server = [] if keep else [f"planner serve --port {url.rpartition(':')[2]} &"]
    body = orjson.dumps(document).decode()
    words = ["curl", "-sS", f"{url}/v1/searches", "-H", "Content-Type: application/json", "-H", "Prefer: wait=60", "--data", body]
    out.print("\n[bold]The same with curl[/]")
    for line in [*server, shlex.join(words)]:
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def wait_for_interrupt(out: Console) -> None:
    """Until Ctrl-C."""
    out.print("\nThe service keeps running; Ctrl-C stops it.")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def serve_command(database_url: str) -> list[str]:
    """A service at a free loopback port, run by this very Python."""
    serve = [sys.executable, "-P", "-m", "planner_service.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    return [*serve, "--database", database_url]


@contextmanager
def service(database: Path) -> Iterator[str]:
    """A service in a process of its own on a free loopback port; yields its URL."""
    command = serve_command(f"sqlite:///{database}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    try:
        url = _announced_url(process)
        _wait_until_ready(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _announced_url(process: subprocess.Popen[str]) -> str:
    """The address that the service says it has."""
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    stream = process.stdout
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        line = lines.get(timeout=START_TIMEOUT_S)
    except queue.Empty:
        line = ""
    if not line.startswith(ANNOUNCEMENT):
        raise ServiceUnreachable("the service did not start")
    return line.removeprefix(ANNOUNCEMENT).strip()


def _wait_until_ready(process: subprocess.Popen[str], url: str) -> None:
    """Until /readyz answers 200."""
    end_s = time.monotonic() + START_TIMEOUT_S
    with PlannerClient(url, timeout_s=5.0) as client:
        while not client.ready():
            if process.poll() is not None or time.monotonic() > end_s:
                raise ServiceUnreachable("the service did not become ready")
            time.sleep(0.1)
