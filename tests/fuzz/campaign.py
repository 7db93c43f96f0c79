"""Sends numbered random requests to a server and checks every answer against the OpenAPI document.

    python -m tests.fuzz.campaign --count 50000 --seed 1 --state fuzz.json [--url http://127.0.0.1:8000]

Without a URL it starts a server of its own with small limits. The state file holds how far it got, so that it can be stopped and
started again; findings are written beside it. It ends with 1 when there were any.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.fuzz.requests import Known, Request, Requests
from tests.service.openapi_schemas import Contract

BATCH = 64
AT_ONCE = 8
TIMEOUT_S = 60.0
STREAM_S = 1.0
SERVER = {
    "search_max_time_s": 2,
    "search_kill_grace_s": 2,
    "evaluation_max_time_s": 4,
    "concurrent_searches": 1,
    "max_queued_searches": 20,
    "max_event_streams": 50,
}


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int
    media: str
    body: bytes


@dataclass(slots=True)
class Progress:
    """How far a campaign is."""

    seed: int
    done: int = 0
    seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    findings: int = 0


async def exchange(host: str, port: int, request: Request) -> Answer | None:
    """The answer to one request on a connection of its own; None when the server just closed it."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request.payload)
        if request.operation is None:
            writer.write_eof()
        raw = await _read(reader, request)
    finally:
        writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    while head.split(b" ")[1:2] == [b"100"]:
        head, _, body = body.partition(b"\r\n\r\n")
    if not head:
        return None
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers.get("content-type", "").partition(";")[0], body)


async def _read(reader: asyncio.StreamReader, request: Request) -> bytes:
    """Everything; of an event stream what comes within a second."""
    raw = bytearray()
    streams = request.operation is not None and request.operation[0].endswith("/events")
    try:
        async with asyncio.timeout(STREAM_S if streams else TIMEOUT_S):
            while chunk := await reader.read(65536):
                raw += chunk
    except TimeoutError:
        if not streams:
            raise
    except ConnectionResetError:
        pass
    return bytes(raw)


def complaint(contract: Contract, request: Request, answer: Answer | None) -> str | None:
    """What is wrong with an answer."""
    if answer is None:
        return None if request.operation is None else "no answer"
    if answer.status >= 500:
        return f"status {answer.status}"
    if request.head:
        return "HEAD with a body" if answer.body else None
    if request.operation is None or _refused_as_http(answer):
        return _outside(contract, answer)
    content: Any = answer.body
    if answer.media.endswith("json"):
        content = json.loads(answer.body)
    elif answer.media:
        content = answer.body.decode()
    return contract.complaint(*request.operation, answer.status, answer.media, content)


def _refused_as_http(answer: Answer) -> bool:
    """Whether the parser refused the request, before its path meant anything."""
    return answer.status == 400 and b'"code":"malformed_request"' in answer.body


def _outside(contract: Contract, answer: Answer) -> str | None:
    """Answers to what is not in the document: refusals are problem documents there too."""
    if answer.status < 400:
        return None
    if answer.media != "application/problem+json":
        return f"{answer.status} with {answer.media}"
    return contract.component_complaint("ErrorDocument", json.loads(answer.body))


class Campaign:
    """Runs requests `progress.done` to `count`."""

    def __init__(self, url: str, document: dict[str, Any], progress: Progress, state: Path | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._contract = Contract(document)
        self._requests = Requests(document, progress.seed)
        self._known = Known()
        self._state = state
        self._progress = progress
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.findings: list[dict[str, Any]] = []

    async def run(self, count: int) -> None:
        """In batches; the state is written after each."""
        began_s = time.monotonic() - self._progress.seconds
        while self._progress.done < count:
            end = min(count, self._progress.done + BATCH)
            await asyncio.gather(*(self._one(index) for index in range(self._progress.done, end)))
            self._progress.done = end
            self._progress.seconds = time.monotonic() - began_s
            self._save()

    async def _one(self, index: int) -> None:
        async with self._gate:
            request = self._requests.number(index, self._known)
            try:
                answer = await exchange(*self._address, request)
                wrong = complaint(self._contract, request, answer)
            except (OSError, TimeoutError, ValueError, AssertionError) as error:
                answer, wrong = None, f"{type(error).__name__}: {error}"
        status = str(answer.status if answer else "closed")
        self._progress.statuses[status] = self._progress.statuses.get(status, 0) + 1
        if answer is not None and answer.media == "application/json" and not request.head:
            self._known.note(json.loads(answer.body))
        if wrong is not None:
            shown = answer.body[:2000].decode("utf-8", "replace") if answer else None
            self._finding({"index": index, "wrong": wrong, "request": repr(request.payload[:4000]), "answer": shown})

    def _finding(self, finding: dict[str, Any]) -> None:
        self.findings.append(finding)
        self._progress.findings += 1
        if self._state is not None:
            with self._state.with_suffix(".findings.jsonl").open("a") as file:
                file.write(json.dumps(finding) + "\n")

    def _save(self) -> None:
        if self._state is not None:
            self._state.write_text(json.dumps(asdict(self._progress)))


def read_progress(state: Path | None, seed: int) -> Progress:
    """Where an earlier run stopped, or the beginning."""
    if state is None or not state.exists():
        return Progress(seed)
    kept = json.loads(state.read_text())
    assert kept["seed"] == seed, "the state is of another seed"
    return Progress(**kept)


def main() -> int:
    """See the module's first lines."""
    from planner_service.solver_port import DEFAULT_SOLVER
    from tests.service.openapi_changes import current_document
    from tests.service.servers import running_server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--url")
    options = parser.parse_args()
    progress = read_progress(options.state, options.seed)
    with ExitStack() as stack:
        url = options.url
        if url is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            server = running_server(f"sqlite:///{directory}/fuzz.db", solver_name=DEFAULT_SOLVER, **SERVER)
            url, _ = stack.enter_context(server)
        document = json.loads(json.dumps(current_document()))
        asyncio.run(Campaign(url, document, progress, options.state).run(options.count))
    print(json.dumps(asdict(progress)))
    return 1 if progress.findings else 0


if __name__ == "__main__":
    sys.exit(main())
