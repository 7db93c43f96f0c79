"""The cost model against published runs, one line a file, in three columns.

    python -m benchmarks.accuracy [--only FILE ...] [--columns fitted,left_out,plus_five] [--markdown] [--json] [--record]

fitted     with the constants that ship; of the two sampled files only rows that were not fitted count
left out   constants refitted without the file (`benchmarks.fit`). A constant of a profile that no other file determines takes the
           geometric mean of the other profiles, not a value that somebody who knew the file would choose
+5         from there, five of the file's rows calibrate the profile (`planner calibrate`), scored on the rest; mean of four draws

Refits are kept in build/accuracy.refits.json by file and digest of data, model and fitter, so that a run can be
resumed. Rows and their settings: benchmarks/fit_rows.txt, benchmarks/fit/runs.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.accuracy_files import FILES, FileRuns, read_file
from benchmarks.accuracy_refits import Refits
from benchmarks.accuracy_report import json_entries, print_constants, print_markdown, print_table
from benchmarks.load.results import record
from benchmarks.reference_speed import reference_operations_per_s
from solver.calibrate import refit
from solver.validate import Constants, Harness

COLUMNS = ("fitted", "left_out", "plus_five")
DRAWS = 4
CALIBRATED_ON = 5


@dataclass(frozen=True, slots=True)
class Errors:
    """Of |predicted / measured - 1|, fractions."""

    rows: int
    mean: float
    median: float
    p90: float
    max: float
    signed: float


def errors_of(ratios: np.ndarray) -> Errors:
    """Errors of predicted / measured ratios."""
    size = np.abs(ratios - 1.0)
    return Errors(
        rows=len(ratios),
        mean=float(size.mean()),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        max=float(size.max()),
        signed=float(np.median(ratios - 1.0)),
    )


def mean_errors(entries: Sequence[Errors]) -> Errors:
    """Mean of the figures of several draws."""
    names = ("mean", "median", "p90", "max", "signed")
    means = {name: float(np.mean([getattr(entry, name) for entry in entries])) for name in names}
    return Errors(rows=entries[0].rows, **means)


def score(runs: FileRuns, constants: Constants) -> Errors:
    """Errors of a file's scored runs."""
    harness = Harness([run.case for run in runs.scored])
    return errors_of(harness.predict(constants) / np.array([run.measured_s for run in runs.scored]))


def score_plus_five(runs: FileRuns, constants: Constants) -> Errors:
    """Mean of the draws: calibrated on five runs, scored on the others."""
    harness = Harness([run.case for run in runs.scored])
    measured = np.array([run.measured_s for run in runs.scored])
    found = []
    for seed in range(DRAWS):
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(measured))
        chosen, rest = sorted(order[:CALIBRATED_ON].tolist()), sorted(order[CALIBRATED_ON:].tolist())
        calibrated = refit(harness, chosen, measured, constants).constants
        found.append(errors_of(harness.predict(calibrated, rest)[rest] / measured[rest]))
    return mean_errors(found)


def file_entry(name: str, columns: Sequence[str], refits: Refits | None) -> dict[str, Any]:
    """All figures of one file."""
    runs = read_file(name)
    entry: dict[str, Any] = {"file": name, "scored_as": runs.scored_as, "rows": len(runs.scored), "beside": runs.beside}
    if not runs.scored:
        return entry
    if "fitted" in columns:
        entry["fitted"] = score(runs, Constants())
    if refits is not None and {"left_out", "plus_five"} & set(columns):
        constants = refits.without(name)
        if "left_out" in columns:
            entry["left_out"] = score(runs, constants)
        if "plus_five" in columns and len(runs.scored) > 2 * CALIBRATED_ON:
            entry["plus_five"] = score_plus_five(runs, constants)
    return entry


def entries(names: Sequence[str], columns: Sequence[str], fresh: bool) -> Iterator[dict[str, Any]]:
    """Figures file by file."""
    refits = Refits(fresh=fresh)
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        yield file_entry(name, columns, refits)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="files by the begin of their names")
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--markdown", action="store_true", help="the table of the README")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="append to benchmarks/results")
    parser.add_argument("--fresh", action="store_true", help="refit even what is kept")
    chosen = parser.parse_args(arguments)
    names = [name for name in FILES if not chosen.only or any(name.startswith(prefix) for prefix in chosen.only)]
    found = list(entries(names, chosen.columns.split(","), chosen.fresh))
    figures = json_entries(found)
    reference = reference_operations_per_s()
    if chosen.record:
        record("accuracy", {"figures": figures, "reference_operations_per_s": reference})
    if chosen.json:
        print(json.dumps(figures, indent=1))
    elif chosen.markdown:
        print_markdown(found, figures)
    else:
        print_table(found, figures)
        print_constants()
        print(f"reference kernel: {reference / 1e6:.1f} million operations/s")
    return 0 if all(figure["met"] is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
