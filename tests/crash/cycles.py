"""`python -m tests.crash.cycles --engine sqlite|postgres --cycles 300 [--resume]`: kill -9 of server, worker or child at random.

Runs batches in fresh databases and appends one line per batch to the results file. `--resume` goes on after the batches of
this commit that are already there. Every 12th batch runs the solver itself, the others one that only takes time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from tests.crash.batch import ROLES, run_batch
from tests.service.postgres import missing, new_database, own_server

BATCH = 25
REAL_EVERY = 12
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "crash_cycles.jsonl"


def main(arguments=None):
    """Runs what is left to run, then prints the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), required=True)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="count the batches of this commit in the results file")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    commit = current_commit()
    done = known(options.output, commit, options.engine) if options.resume else []
    with databases(options.engine) as fresh:
        while (cycles := sum(line["cycles"] for line in done)) < options.cycles:
            number = len(done) + 1
            count = min(BATCH, options.cycles - cycles)
            line = one_line(options, commit, fresh(), count, number)
            append(options.output, line)
            done.append(line)
            print(json.dumps(line), flush=True)
    print(json.dumps(summary(options.engine, done)))
    return 0 if all(line["broken"] is None for line in done) else 1


def current_commit():
    """Short hash of what is tested; "unknown" outside a checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return found.stdout.strip() or "unknown"


def one_line(options, commit, database_url, cycles, number):
    """Runs a batch; what it broke is part of the line."""
    seed, real, broken, measured = options.seed * 1000 + number, number % REAL_EVERY == 0, None, None
    began_s = time.monotonic()
    try:
        measured = run_batch(database_url, cycles, seed, real)
    except AssertionError as error:
        broken = str(error)[:500]
    line = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "engine": options.engine,
        "solver": "real" if real else "steady",
        "seed": seed,
        "cycles": cycles,
        "broken": broken,
        "wall_s": round(time.monotonic() - began_s, 1),
    }
    if measured is not None:
        line |= {"kills": measured.kills, "searches": measured.searches}
        for name in ("orphan_s", "restart_s", "cancel_s"):
            line[name] = [round(value, 3) for value in getattr(measured, name)]
    return line


def known(path, commit, engine):
    """Lines of this commit and engine."""
    if not path.exists():
        return []
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]
    return [line for line in lines if line["commit"] == commit and line["engine"] == engine]


def append(path, line):
    """One line at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def summary(engine, lines):
    """Sums and percentiles over all batches."""
    good = [line for line in lines if line["broken"] is None]
    sums = {
        "engine": engine,
        "cycles": sum(line["cycles"] for line in lines),
        "searches": sum(line["searches"] for line in good),
        "kills": {role: sum(line["kills"][role] for line in good) for role in ROLES},
        "broken": [line["broken"] for line in lines if line["broken"] is not None],
    }
    for name in ("orphan_s", "restart_s", "cancel_s"):
        values = sorted(value for line in good for value in line[name])
        if values:
            at = {"p50": statistics.median(values), "p99": values[min(len(values) - 1, int(0.99 * len(values)))]}
            sums[name] = {"count": len(values), **at, "max": values[-1]}
    return sums


@contextmanager
def databases(engine):
    """A function that makes the URL of a fresh database."""
    if engine == "postgres":
        reason = missing()
        if reason is not None:
            sys.exit(f"no PostgreSQL: {reason}")
        with own_server() as server_url:
            yield lambda: new_database(server_url)
        return
    with tempfile.TemporaryDirectory(prefix="planner-crash-") as directory:
        count = iter(range(10**9))
        yield lambda: f"sqlite:///{Path(directory) / f'{next(count)}.db'}"


if __name__ == "__main__":
    sys.exit(main())
