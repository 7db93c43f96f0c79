"""How late the event loop is while two searches run and large bodies come in: the server's own histograms, before and after.

    python -m benchmarks.load.loop_delay [--seconds 60] [--record]

`own` is what of the delay the server's processor time can explain, and what the target is for: on a machine that does other
things too the whole delay is theirs. One client sends 8 MiB bodies of every kind in turn, four ask for a stored plan and a list,
two searches use the processors.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.load.bodies import large_bodies
from benchmarks.load.cached import finished_search, planner, post
from benchmarks.load.results import record
from benchmarks.witnesses import EXAMPLES
from planner_service.solver_adapter import load_yaml

TARGET_MS = 20.0
LONG = ("deepseek-v3-256-h100.yaml", "llama-3.1-70b-mixed-megatron.yaml")
NAMES = {"": "planner_event_loop_delay_seconds_bucket", "own_": "planner_event_loop_own_delay_seconds_bucket"}
Samples = dict[float, float]


def histograms(url: str) -> dict[str, Samples]:
    """Samples up to each bound in seconds, of the delay and of the server's own part in it."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {kind: _samples(lines, name) for kind, name in NAMES.items()}


def _samples(lines: list[str], name: str) -> Samples:
    pairs = [line.removeprefix(name + '{le="').split('"} ') for line in lines if line.startswith(name)]
    return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in pairs}


def quantile_ms(before: Samples, after: Samples, share: float) -> float:
    """The bound below which `share` of the new samples lie, in milliseconds."""
    total = after[float("inf")] - before[float("inf")]
    return next(bound for bound in sorted(after) if after[bound] - before[bound] >= share * total) * 1e3


def send(url: str, path: str, body: bytes) -> int:
    """The status of one large request."""
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


def run(seconds: float) -> list[dict[str, Any]]:
    """One figure for each kind of body, and one for all."""
    with tempfile.TemporaryDirectory() as name, planner(Path(name), PLANNER_CONCURRENT_SEARCHES="2") as url:
        plan_url = f"{url}/v1/plans/{json.loads(finished_search(url))['result']['plan']['id']}"
        stop = threading.Event()
        for file in LONG:
            problem = load_yaml((EXAMPLES / file).read_bytes())
            options = {**problem.get("search", {}), "time_limit_s": 600, "target_gap": 0.0}
            post(f"{url}/v1/searches", {**problem, "search": options})

        def ask() -> None:
            while not stop.is_set():
                for address in (plan_url, f"{url}/v1/searches", f"{url}/v1/devices"):
                    with urllib.request.urlopen(address, timeout=120) as answer:
                        answer.read()
                time.sleep(0.02)

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for thread in askers:
            thread.start()
        figures, first = [], histograms(url)
        kinds = large_bodies()
        for kind, (path, content) in kinds.items():
            before, end_s, statuses = histograms(url), time.monotonic() + seconds / len(kinds), set()
            while time.monotonic() < end_s:
                statuses.add(send(url, path, content))
            after = histograms(url)
            figures.append(figure(kind, before, after) | {"statuses": sorted(statuses)})
        figures.append(figure("all", first, histograms(url)))
        running = json.loads(urllib.request.urlopen(f"{url}/v1/searches?state=running").read())["searches"]
        figures[-1]["searches_running_at_the_end"] = len(running)
        stop.set()
        for thread in askers:
            thread.join()
        return figures


def figure(what: str, before: dict[str, Samples], after: dict[str, Samples]) -> dict[str, Any]:
    """Quantiles of the samples between two readings."""
    made: dict[str, Any] = {"what": what, "samples": after[""][float("inf")] - before[""][float("inf")]}
    for kind in NAMES:
        quantiles = {share: quantile_ms(before[kind], after[kind], share / 100) for share in (50, 99, 100)}
        made |= {f"{kind}p{share}_ms_at_most": value for share, value in quantiles.items()}
    return made | {"met": made["own_p99_ms_at_most"] <= TARGET_MS}


def main() -> None:
    """Prints one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--record", action="store_true", help="append to benchmarks/results")
    options = parser.parse_args()
    for entry in run(options.seconds):
        print(json.dumps(entry))
        if options.record:
            record("load_loop_delay", entry)


if __name__ == "__main__":
    main()
