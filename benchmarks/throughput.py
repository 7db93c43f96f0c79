"""Uniform layouts a second on one core: every uniform cell of GPT-3 175B on 1,024 A100, priced exactly.

    python -m benchmarks.throughput [--runs 7] [--layouts 200000] [--json]

A layout is a state variant x recompute mixture of a cell, nothing offloaded; pricing covers its memory, the recompute that makes
it fit, and the schedule's own recurrence when it does. Median of CPU seconds over warm runs, threads pinned to one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys

for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

from benchmarks.reference_speed import RECORDED_OPERATIONS_PER_S, cpu_seconds, reference_operations_per_s  # noqa: E402
from benchmarks.witnesses import read_example  # noqa: E402
from solver.balance.batch import Candidates, price  # noqa: E402
from solver.search.cells import UNIFORM  # noqa: E402
from solver.search.session import Session, open_session  # noqa: E402

EXAMPLE = "gpt3-175b-1024-a100.yaml"
TARGET_LAYOUTS_PER_S = 100_000.0
CELLS_PER_BLOCK = 1 << 14


def uniform_candidates(session: Session, most: int, seed: int = 0) -> Candidates:
    """A random sample of the layouts of the uniform cells, in the order of the space."""
    cells = session.space.cells
    cells = cells.take(np.flatnonzero(cells.family == UNIFORM))
    states, modes = session.grid.states, session.grid.modes
    total = len(cells) * len(states) * len(modes)
    chosen = np.sort(np.random.default_rng(seed).choice(total, size=min(most, total), replace=False))
    cell, rest = np.divmod(chosen, len(states) * len(modes))
    state, mode = np.divmod(rest, len(modes))
    parts = []
    for start in range(0, len(chosen), CELLS_PER_BLOCK):
        block = slice(start, start + CELLS_PER_BLOCK)
        taken = cells.take(cell[block])
        zero = np.array([variant.zero for variant in states])[state[block]]
        zero = np.where(taken.cp[:, 0] * taken.total_dp == 1, 0, zero)
        inside = np.array([variant.inside_node for variant in states])[state[block]]
        low, high = np.array(modes)[mode[block]].T
        parts.append(session.builder.candidates(taken, zero=zero, inside_node=inside, low=low, high=high))
    return Candidates.concatenate(parts)


def measure(runs: int, most: int) -> dict[str, object]:
    """One entry of a benchmark's report."""
    session = open_session(read_example(EXAMPLE))
    candidates = uniform_candidates(session, most)
    tables = session.builder.tables()

    def run() -> None:
        price(session.model, tables, candidates, exact=True, same_count=session.grid.same_count)

    run()
    seconds = cpu_seconds(run, runs)
    value = len(candidates) / statistics.median(seconds)
    verdicts = price(session.model, tables, candidates, exact=True, same_count=session.grid.same_count).verdict
    reference = reference_operations_per_s()
    return {
        "id": "uniform-layouts-per-second",
        "work": f"{len(candidates)} layouts of {EXAMPLE}, exact, {int((verdicts == 2).sum())} of them safe",
        "space": session.space.count,
        "value": value,
        "unit": "layouts/s",
        "spread": [len(candidates) / max(seconds), len(candidates) / min(seconds)],
        "target": TARGET_LAYOUTS_PER_S,
        "met": value >= TARGET_LAYOUTS_PER_S * min(1.0, reference / RECORDED_OPERATIONS_PER_S),
        "reference_operations_per_s": reference,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--layouts", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    entry = measure(chosen.runs, chosen.layouts)
    if chosen.json:
        print(json.dumps([entry], indent=2))
    else:
        low, high = entry["spread"]  # type: ignore[misc]
        print(f"{entry['value']:,.0f} layouts/s of CPU time ({low:,.0f} to {high:,.0f}): {entry['work']}")
        print(f"reference kernel: {entry['reference_operations_per_s'] / 1e6:.1f} million operations/s")  # type: ignore[operator]
    return 0 if entry["met"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
