"""The oracle: every layout of a small stated space, written out and priced one by one by the scalar evaluator.

Cells, grids, the kernels' choice of recompute and offload, bounds and the driver are not used: cells come from the recount that
replays proof logs, every recompute count of every stage and every offload fraction is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import prod

import numpy as np

from solver.balance.ledger import assemble
from solver.cost.memory_kernels import FITS, SAFE
from solver.cost.operators import Points
from solver.cost.table import CostModel, cost_model
from solver.frameworks import get_rule_set
from solver.layout import Layout
from solver.problem import Problem
from solver.replay.layouts import layout_document, recompute_choices
from solver.replay.options import Options
from solver.replay.space import Cell, leaves_of, price_per_hour, stated_cells, variants_of
from solver.replay.splits import split_bounds


@dataclass(frozen=True, slots=True)
class BruteForce:
    """Best layout of the demanded verdict, None when there is none.

    `value` is in units of the objective: seconds, or seconds x money per hour / 3600. `layouts` were evaluated, `illegal` of them
    refused by the framework.
    """

    value: float | None
    step_time_s: float | None
    layout: Layout | None
    layouts: int
    illegal: int


@dataclass(frozen=True, slots=True, eq=False)
class RememberingModel(CostModel):
    """A cost model that computes the tables of a point once: layouts of a small space share few points."""

    seen: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @staticmethod
    def of(problem: Problem) -> RememberingModel:
        model = cost_model(problem)
        return RememberingModel(**{entry.name: getattr(model, entry.name) for entry in fields(model)})

    def point_tables(self, group: int, points: Points) -> tuple[np.ndarray, np.ndarray]:
        key = (group, *(np.asarray(getattr(points, entry.name)).tobytes() for entry in fields(points)))
        if key not in self.seen:
            self.seen[key] = CostModel.point_tables(self, group, points)
        return self.seen[key]


def options_of(problem: Problem) -> Options:
    """Grids of a normalised problem."""
    return Options.of(RememberingModel.of(problem), get_rule_set(problem.framework.name, problem.framework.version))


def brute_force(problem: Problem) -> BruteForce:
    """Evaluate all layouts of a normalised problem's stated space."""
    options = options_of(problem)
    demand = SAFE if problem.constraints.memory == "safe" else FITS
    longest = problem.constraints.max_step_time_s or np.inf
    best: tuple[float, float, Layout] | None = None
    layouts = illegal = 0
    for cell in all_leaves(options):
        weight = price_per_hour(options, cell) / 3600.0 if problem.objective.kind == "cost" else 1.0
        for alike in layouts_of(options, cell):
            layouts += len(alike)
            if options.rules.violations(problem, alike[0]):
                illegal += len(alike)
                continue
            for layout in alike:
                assembled = assemble(options.model, layout)
                if assembled.verdict < demand:
                    continue
                seconds = float(assembled.step_seconds().mean())
                if seconds <= longest and (best is None or seconds * weight < best[0]):
                    best = (seconds * weight, seconds, layout)
    if best is None:
        return BruteForce(None, None, None, layouts, illegal)
    assert not options.rules.violations(problem, best[2]), "layouts that differ in recompute only are legal together"
    return BruteForce(*best, layouts, illegal)


def all_leaves(options: Options) -> Iterator[Cell]:
    """All leaves of the space."""
    for cell in stated_cells(options):
        yield from leaves_of(options, cell)


def layouts_of(options: Options, cell: Cell) -> Iterator[list[Layout]]:
    """Every layout of a leaf, in lists that differ in recompute only."""
    choices = list(recompute_choices(options, cell))
    states = sorted({(variant.zero, variant.inside_node) for variant in variants_of(options, cell)})
    for zero, inside in states:
        for percent in options.offload_percents():
            yield [layout_document(options, cell, recompute, zero, inside, percent) for recompute in choices]


def layouts_count(options: Options, at_most: int) -> int:
    """Upper estimate of the layouts in a space; stops counting above `at_most`."""
    total = 0
    percents, modes = len(options.offload_percents()), options.modes()
    for cell in all_leaves(options):
        bounds = split_bounds(options, cell)
        sizes = [sum(int(bounds[k + 1] - bounds[k]) for k in pieces) for pieces in cell.pieces_of_stages()]
        mixtures = sum(1 if low == high else prod(size + 1 for size in sizes) for low, high in modes)
        states = {(variant.zero, variant.inside_node) for variant in variants_of(options, cell)}
        total += len(states) * percents * mixtures
        if total > at_most:
            break
    return total
