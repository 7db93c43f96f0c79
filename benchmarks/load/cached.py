"""Answers that are known already: requests a second of a real server beside a bare handler that returns the same bytes.

    python -m benchmarks.load.cached [--seconds 5] [--clients 32] [--rounds 7] [--record]

The server is `planner serve` in a process of its own on a fresh SQLite file, with the real solver. The bare handler is a route
of the same framework, behind the same HTTP server, in another process; rounds of both alternate, and medians are printed.
Everything, the generator included, shares the processors given by `taskset` (two for the published figures).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.load.generator import Sample, measure, request_bytes
from benchmarks.load.results import record
from benchmarks.reference_speed import RECORDED_OPERATIONS_PER_S, reference_operations_per_s
from planner_service.api.examples import PROBLEM

TARGET_REQUESTS_PER_S, TARGET_P99_MS, TARGET_RATIO = 1000.0, 100.0, 1.5
BARE = """
import sys, socket, uvicorn
from pathlib import Path
from fastapi import FastAPI, Request
from starlette.responses import Response
body = Path(sys.argv[1]).read_bytes()
app = FastAPI(openapi_url=None)
@app.get("/bare/{name}", response_class=Response)
async def get(request: Request, name: str) -> Response:
    return Response(body, media_type="application/json")
@app.post("/bare", response_class=Response)
async def post(request: Request) -> Response:
    await request.body()
    return Response(body, media_type="application/json")
listener = socket.socket(); listener.bind(("127.0.0.1", 0))
print(f"bare at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
"""


@contextmanager
def process(command: list[str], **environment: str) -> Iterator[str]:
    """The URL that a program says in its first line; ended at the end."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        assert running.stdout is not None
        url = running.stdout.readline().rpartition(" ")[2].strip()
        wait_until_up(url)
        yield url
    finally:
        running.terminate()
        running.wait(20)


def wait_until_up(url: str) -> None:
    """Until something answers, whatever it is."""
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(url)


@contextmanager
def planner(directory: Path, **environment: str) -> Iterator[str]:
    """A server on a fresh database."""
    arguments = ["serve", "--port", "0", "--database", str(directory / "planner.db")]
    with process([sys.executable, "-m", "planner_service.cli", *arguments], **environment) as url:
        yield url


def post(url: str, document: Any, **headers: str) -> tuple[int, bytes]:
    """One JSON request."""
    body = json.dumps(document).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.status, answer.read()


def finished_search(url: str) -> bytes:
    """The example's search once it has ended; on a fresh machine kernels are compiled first."""
    status = 202
    while status == 202:
        status, body = post(f"{url}/v1/searches", PROBLEM, Prefer="wait=60")
    return body


def alternate(url: str, bare_url: str, payloads: tuple[bytes, bytes], options: argparse.Namespace) -> dict[str, Any]:
    """Medians over rounds of the real and the bare handler, one after the other."""
    rounds: list[tuple[Sample, Sample]] = []
    for payload, address in zip(payloads, (url, bare_url), strict=True):
        measure(address, payload, options.clients, 1.0)
    for _ in range(options.rounds):
        real = measure(url, payloads[0], options.clients, options.seconds, keep_bodies=True)
        bare = measure(bare_url, payloads[1], options.clients, options.seconds)
        assert set(real.statuses) == set(bare.statuses) == {200}, (real.statuses, bare.statuses)
        assert len(real.bodies) == 1, "the same question got different answers"
        rounds.append((real, bare))
    ours, theirs = [real.summary() for real, _ in rounds], [bare.summary() for _, bare in rounds]
    names = ("requests_per_s", "median_ms", "p99_ms")
    made: dict[str, Any] = {name: statistics.median(entry[name] for entry in ours) for name in names}
    made |= {f"bare_{name}": statistics.median(entry[name] for entry in theirs) for name in names}
    made["p99_ratio"] = round(statistics.median(a["p99_ms"] / b["p99_ms"] for a, b in zip(ours, theirs, strict=True)), 3)
    made["met"] = (
        made["requests_per_s"] >= TARGET_REQUESTS_PER_S and made["p99_ms"] <= TARGET_P99_MS and made["p99_ratio"] <= TARGET_RATIO
    )
    return made


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Both figures."""
    with tempfile.TemporaryDirectory() as name, planner(Path(name)) as url:
        body = finished_search(url)
        plan_url = f"{url}/v1/plans/{json.loads(body)['result']['plan']['id']}"
        plan = urllib.request.urlopen(plan_url).read()
        problem = json.dumps(PROBLEM).encode()
        figures = []
        for what, method, path, sent, answer in (
            ("POST /v1/searches, answered from the store", "POST", f"{url}/v1/searches", problem, body),
            ("GET /v1/plans/{id}", "GET", plan_url, b"", plan),
        ):
            file = Path(name) / "answer.json"
            file.write_bytes(answer)
            with process([sys.executable, "-c", BARE, str(file)]) as bare_url:
                bare_path = f"{bare_url}/bare" if method == "POST" else f"{bare_url}/bare/x"
                payloads = (request_bytes(method, path, sent), request_bytes(method, bare_path, sent))
                figures.append({"what": what, "answer_bytes": len(answer), **alternate(url, bare_url, payloads, options)})
        return figures


def main() -> None:
    """Prints one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true", help="append to benchmarks/results")
    options = parser.parse_args()
    speed = reference_operations_per_s() / RECORDED_OPERATIONS_PER_S
    for figure in run(options):
        print(json.dumps({**figure, "reference_speed": round(speed, 3)}))
        if options.record:
            record("load_cached", {**figure, "clients": options.clients, "reference_speed": round(speed, 3)})


if __name__ == "__main__":
    main()
