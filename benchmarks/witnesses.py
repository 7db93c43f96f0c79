"""Witnesses against the certificates of the examples: random legal layouts, neighbours of the optimum, published layouts.

None of the demanded verdict may be below `lower_bound_s`, nor faster than an `optimal` plan.

    python -m benchmarks.witnesses [EXAMPLE.yaml ...] [--random 200] [--neighbours 100] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.layout_draws import beside_the_space, neighbours, random_layouts
from solver.evaluate import Evaluator
from solver.frameworks import get_rule_set
from solver.layout import Layout
from solver.plan import Evaluation, Result
from solver.problem import Problem, load_document, normalise, parse_problem
from solver.replay.options import Options
from solver.search import search
from solver.search.describe import summary

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PUBLISHED = ROOT / "benchmarks" / "problems" / "witnesses.toml"
SLACK = 1.0 - 1e-9
Witness = dict[str, Any] | Layout


@dataclass(slots=True)
class Report:
    """Witnesses of one example by kind: how many were evaluated, how many have the demanded verdict, those that refute, and
    those better than the answer that are `beside` its stated space.
    """

    example: str
    evaluated: dict[str, int] = field(default_factory=dict)
    comparable: dict[str, int] = field(default_factory=dict)
    closest: float = float("inf")
    refuted: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)


def read_example(name: str) -> Problem:
    """A normalised problem of examples/."""
    return normalise(parse_problem(load_document((EXAMPLES / name).read_bytes(), "yaml")))


def published(name: str) -> list[dict[str, Any]]:
    """Entries of witnesses.toml for one example."""
    entries: list[dict[str, Any]] = tomllib.loads(PUBLISHED.read_text())["witness"]
    return [entry for entry in entries if entry["problem"] == name]


def compare(problem: Problem, result: Result, kind: str, documents: Iterable[Witness], report: Report, options: Options) -> None:
    """Evaluate layouts and note those that refute the certificate. Illegal ones are not counted."""
    evaluator = Evaluator(problem)
    demanded = ("safe",) if problem.constraints.memory == "safe" else ("safe", "fits")
    bound = result.certificate.lower_bound_s
    for document in documents:
        evaluation = _evaluated(evaluator, document)
        if evaluation.plan is None:
            continue
        report.evaluated[kind] = report.evaluated.get(kind, 0) + 1
        prediction = evaluation.plan.prediction
        if prediction.verdict not in demanded:
            continue
        report.comparable[kind] = report.comparable.get(kind, 0) + 1
        seconds = prediction.step_time_s
        if bound is None:
            report.refuted.append(f"{kind}: {seconds:.6f} s fits, the problem was called infeasible: {_text(document)}")
            continue
        optimum = result.plan.prediction.step_time_s if result.status == "optimal" and result.plan else 0.0
        if kind == "neighbours" and isinstance(document, Layout) and seconds < max(bound, optimum) * SLACK:
            reason = beside_the_space(options, document)
            if reason is not None:
                report.beside.append(f"{kind}: {seconds:.6f} s, {reason}: {_text(document)}")
                continue
        report.closest = min(report.closest, seconds / bound)
        if seconds < bound * SLACK:
            report.refuted.append(f"{kind}: {seconds:.6f} s is below the bound {bound:.6f} s: {_text(document)}")
        elif result.status == "optimal" and result.plan and seconds < result.plan.prediction.step_time_s * SLACK:
            report.refuted.append(f"{kind}: {seconds:.6f} s beats the optimum: {_text(document)}")


def _text(document: Witness) -> str:
    return (
        f"{summary(document)}, layers {[stage.chunks for stage in document.stages]}"
        if isinstance(document, Layout)
        else str(document)
    )


def _evaluated(evaluator: Evaluator, document: Witness) -> Evaluation:
    """Evaluation of a document or of a layout whose legality is known."""
    if not isinstance(document, Layout):
        return evaluator.evaluate(document)
    plan = evaluator.plan(document)
    return Evaluation(verdict="does_not_fit" if plan.prediction.verdict == "no" else "ok", violations=(), plan=plan)


def legal_words(evaluator: Evaluator, draws: Iterable[Witness], count: int) -> list[Witness]:
    """The first `count` documents that are legal."""
    found: list[Witness] = []
    for document in draws:
        if len(found) == count:
            break
        if isinstance(document, Layout) or evaluator.evaluate(document).verdict != "illegal":
            found.append(document)
    return found


def check_example(name: str, randoms: int, near: int, seed: int = 0, result: Result | None = None) -> Report:
    """All witnesses of one example against its search's result."""
    problem = read_example(name)
    rng = random.Random(seed)
    report = Report(name)
    result = result or search(problem).result
    evaluator = Evaluator(problem)
    options = Options.of(evaluator.model, get_rule_set(problem.framework.name, problem.framework.version))
    drawn = legal_words(evaluator, random_layouts(problem, options, rng, 100 * randoms), randoms)
    compare(problem, result, "random", drawn, report, options)
    compare(problem, result, "published", [entry["layout"] for entry in published(name)], report, options)
    if result.plan is not None:
        compare(problem, result, "neighbours", neighbours(problem, options, result.plan.layout, rng, near), report, options)
    return report


def main(arguments: list[str]) -> int:
    """Exit status 1 when a witness refutes a certificate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="*", default=sorted(path.name for path in EXAMPLES.glob("*.yaml")))
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    wrong = 0
    for name in chosen.examples:
        start = time.perf_counter()
        report = check_example(name, chosen.random, chosen.neighbours, chosen.seed)
        wrong += len(report.refuted)
        counts = f"legal {report.evaluated}, of the demanded verdict {report.comparable}, least / bound {report.closest:.6f}"
        found = f"refuted {len(report.refuted)}, better beside the space {len(report.beside)}"
        print(f"{name}: {counts}, {found}, {time.perf_counter() - start:.1f} s", flush=True)
        for text in report.refuted[:5]:
            print("   ", text[:600])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
