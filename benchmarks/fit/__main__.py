"""Fit the constants and, with --write, put them into the catalogue.

    python -m benchmarks.fit [--write] [--without FILE] [--rounds 2] [--jacobians 3]

Rows with open cells are completed by the model itself, so the fit runs in rounds: complete, fit, complete again. Prints every
constant with its prior and whether the data determine it, and the errors per file.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.fit.data import listed, write_listed
from benchmarks.fit.fitting import Fitted, Problem, fit
from benchmarks.fit.parameters import parameters
from benchmarks.fit.runs import all_runs
from benchmarks.fit.score import summary
from benchmarks.fit.write import write


def main() -> None:
    """Run the fit."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.fit")
    options.add_argument("--write", action="store_true", help="write the values into the catalogue")
    options.add_argument("--list", action="store_true", help="draw the rows again and write fit_rows.txt")
    options.add_argument("--without", default="", help="measurement file to leave out")
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--jacobians", type=int, default=3, help="Jacobians a round")
    chosen = options.parse_args()
    fitted: Fitted | None = None
    for _ in range(chosen.rounds):
        runs = all_runs(fitted.constants if fitted else None)
        if chosen.list:
            write_listed(runs)
        ids = listed()
        wanted = [run for run in runs if run.row_id in ids and run.file != chosen.without]
        fitted = fit(wanted, parameters(), fitted.values if fitted else None, chosen.jacobians)
    assert fitted is not None, "at least one round"
    for parameter, value, moved in zip(fitted.parameters, fitted.values, fitted.moved, strict=True):
        remark = "" if moved else " (at its prior: the data do not determine it)"
        print(f"{parameter.name:70} {value:10.4g}  prior {parameter.prior:.4g}{remark}")
    ratios = Problem(runs, fitted.parameters).log_ratios(np.log(fitted.values))
    for file, (count, mean, median, high, most, signed) in summary([run.file for run in runs], ratios).items():
        errors = f"mean {mean:6.1%} median {median:6.1%} p90 {high:6.1%} max {most:6.1%} signed {signed:+6.1%}"
        print(f"{file:24} {count:5} rows  {errors}")
    if chosen.write:
        for path in write(fitted):
            print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
