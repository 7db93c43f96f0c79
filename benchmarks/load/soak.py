"""Memory of a server under mixed load for a long time.

    python -m benchmarks.load.soak [--minutes 15] [--record]

Six clients search, ask again, evaluate, compare, label, delete, follow events, send large and wrong bodies. The first fifth is
warm-up; growth is the median resident memory of the last tenth against that of the tenth after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load.cached import planner
from benchmarks.load.results import record
from planner_service.api.examples import HF_CONFIG, LAYOUT, PROBLEM

TARGET_GROWTH = 0.05
CLIENTS = 6
SERVER = {"PLANNER_ANSWER_CACHE_BYTES": str(2**22), "PLANNER_CONCURRENT_SEARCHES": "1", "PLANNER_MAX_QUEUED_SEARCHES": "20"}
MEMORY = "process_resident_memory_bytes "


@dataclass(slots=True)
class Load:
    """One client: what it knows and what it got."""

    url: str
    source: random.Random
    searches: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of an answer, whatever its status."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, raw, {"Content-Type": "application/json", **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                self.statuses[answer.status] += 1
                content = answer.read()
        except urllib.error.HTTPError as error:
            self.statuses[error.code] += 1
            content = error.read()
        return json.loads(content) if content[:1] == b"{" else content

    def step(self) -> None:
        """One random thing that clients do."""
        chosen = self.source.choices(ACTIONS, WEIGHTS)[0]
        chosen(self)

    def note(self, search: Any) -> None:
        """Keeps the newest ids."""
        if isinstance(search, dict) and "problem_digest" in search:
            self.searches = [*self.searches, search["id"]][-20:]
            plan = (search.get("result") or {}).get("plan")
            self.plans = [*self.plans, plan["id"]][-20:] if plan else self.plans


def search(load: Load) -> None:
    """One of some problems, so that most are known."""
    batch = {"global_batch": {"sequences": 64 * load.source.randint(1, 12)}}
    body = {**PROBLEM, "workload": {**PROBLEM["workload"], **batch}}
    spaces = " " * load.source.randrange(200)
    load.note(load.call("POST", "/v1/searches", (spaces + json.dumps(body)).encode(), Prefer="wait=1"))


def evaluate(load: Load) -> None:
    """A layout, new or known."""
    layout = {**LAYOUT, "tp": load.source.choice((1, 2, 4)), "pp": load.source.choice((1, 2)), "mbs": load.source.choice((1, 2))}
    layout.pop("dp")
    answer = load.call("POST", "/v1/evaluations", {"problem": PROBLEM, "layout": layout})
    if isinstance(answer, dict) and answer.get("plan"):
        load.plans = [*load.plans, answer["plan"]["id"]][-20:]


def read(load: Load) -> None:
    """What is known already."""
    for plan in load.plans[-3:]:
        load.call("GET", f"/v1/plans/{plan}")
    for name in load.searches[-3:]:
        load.call("GET", f"/v1/searches/{name}")
    load.call("GET", load.source.choice(("/v1/searches", "/v1/searches?limit=100", "/v1/devices", "/v1/models", "/openapi.json")))


def follow(load: Load) -> None:
    """The events of a search to their end, or a stream that is left."""
    if load.searches:
        load.call("GET", f"/v1/searches/{load.searches[-1]}/events")


def label(load: Load) -> None:
    """A new name."""
    if load.searches:
        load.call("PATCH", f"/v1/searches/{load.source.choice(load.searches)}", {"label": f"n{load.source.random()}"})


def delete(load: Load) -> None:
    """Away with one."""
    if load.searches:
        load.call("DELETE", f"/v1/searches/{load.searches.pop(0)}")


def look(load: Load) -> None:
    """Comparison, timeline and export."""
    if len(set(load.plans)) >= 2:
        load.call("POST", "/v1/comparisons", {"plans": list(dict.fromkeys(load.plans))[-2:]})
        load.call("GET", f"/v1/plans/{load.plans[-1]}/timeline")
        load.call("GET", f"/v1/plans/{load.plans[-1]}/exports/megatron-core")


def wrong(load: Load) -> None:
    """What is refused."""
    load.call("POST", "/v1/searches", load.source.randbytes(load.source.randrange(1, 5000)))
    load.call("POST", "/v1/searches", {f"x{load.source.random()}": 0 for _ in range(load.source.randrange(300))})
    load.call("GET", f"/v1/plans/{load.source.getrandbits(256):064x}")
    load.call("GET", f"/x{load.source.random()}?y={load.source.random()}")


def large(load: Load) -> None:
    """A megabyte."""
    load.call("POST", "/v1/imports/hf-config", {**HF_CONFIG, "comment": "x" * 2**20})


ACTIONS = (search, evaluate, read, follow, label, delete, look, wrong, large)
WEIGHTS = (4, 4, 10, 1, 1, 1, 2, 4, 0.2)


def resident_bytes(url: str) -> float:
    """Of the server process, as it says itself."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(MEMORY)).removeprefix(MEMORY))


def run(minutes: float) -> dict[str, Any]:
    """One figure."""
    with tempfile.TemporaryDirectory() as name, planner(Path(name), **SERVER) as url:
        end_s = time.monotonic() + 60 * minutes
        loads = [Load(url, random.Random(number)) for number in range(CLIENTS)]

        def work(load: Load) -> None:
            while time.monotonic() < end_s:
                load.step()

        threads = [threading.Thread(target=work, args=(load,)) for load in loads]
        for thread in threads:
            thread.start()
        samples = []
        while time.monotonic() < end_s:
            samples.append(resident_bytes(url))
            time.sleep(max(0.5, 60 * minutes / 300))
        for thread in threads:
            thread.join()
    return figure(samples, minutes, sum((load.statuses for load in loads), Counter()))


def figure(samples: list[float], minutes: float, statuses: Counter[int]) -> dict[str, Any]:
    """Growth after the warm-up."""
    tenth = max(1, len(samples) // 10)
    first, last = (statistics.median(part) for part in (samples[2 * tenth : 3 * tenth], samples[-tenth:]))
    growth = last / first - 1
    return {
        "what": "resident memory of the server",
        "minutes": minutes,
        "requests": sum(statuses.values()),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "after_warm_up_bytes": first,
        "at_the_end_bytes": last,
        "growth_fraction": round(growth, 4),
        "met": growth <= TARGET_GROWTH and not any(status >= 500 for status in statuses),
    }


def main() -> None:
    """Prints the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--record", action="store_true", help="append to benchmarks/results")
    options = parser.parse_args()
    entry = run(options.minutes)
    print(json.dumps(entry))
    if options.record:
        record("load_soak", entry)


if __name__ == "__main__":
    main()
