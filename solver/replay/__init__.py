"""Re-check of a proof log (DESIGN 5): the cells partition the stated space, and every value holds when it is computed again.

The space is recounted from the problem by `replay.space`; bounds come from `solver.bounds`, prices and memory from the cost
kernels. Nothing of the search is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import numpy as np

from solver.cost.memory_kernels import FITS, SAFE
from solver.cost.table import cost_model
from solver.errors import CertificationFailed
from solver.frameworks import get_rule_set
from solver.plan import ProofStep
from solver.problem import Problem, normalise
from solver.replay.arrays import Arrays, Entry
from solver.replay.options import Options
from solver.replay.space import Cell, leaves_of, legal_at, price_per_hour, shard_copies, stated_cells, variants_of

TOLERANCE = 1e-9
MOST_FINDINGS = 20
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class _Step:
    """A line of the log; `value` in units of the objective, None where nothing was to be priced."""

    number: int
    cell: Cell
    closed_by: str
    value: float | None


class _Findings:
    """What does not hold; a few are kept word by word, all are counted."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.texts) < MOST_FINDINGS:
            self.texts.append(text)

    def stop(self) -> None:
        """Raise when anything was found."""
        if self.count:
            more = [f"... and {self.count - len(self.texts)} more"] if self.count > len(self.texts) else []
            raise CertificationFailed(tuple(self.texts + more))


def replay(problem: Problem, proof: Sequence[ProofStep]) -> float | None:
    """The proven lower bound of a problem's objective, None when no layout is possible.

    In seconds; for the objective cost in seconds x money per hour / 3600. Raises CertificationFailed with what does not hold.
    """
    problem = normalise(problem)
    options = Options.of(cost_model(problem), get_rule_set(problem.framework.name, problem.framework.version))
    findings = _Findings()
    steps = _read(options, proof, findings)
    _check_partition(options, steps, findings)
    findings.stop()
    check = _Check(options, steps, findings)
    bound = check.run()
    findings.stop()
    return bound


# -------------------------------------------------------------------------------------------------------------------- partition
def _read(options: Options, proof: Iterable[ProofStep], findings: _Findings) -> list[_Step]:
    names = [group.name for group in options.model.problem.cluster.groups]
    steps = []
    for number, entry in enumerate(proof):
        cell = _cell(entry.cell, names)
        if cell is None:
            findings.add(f"step {number}: the cell is not in the words of the space: {entry.cell}")
        else:
            steps.append(_Step(number, cell, entry.closed_by, entry.value))
    return steps


def _cell(document: Any, names: list[str]) -> Cell | None:
    """The cell that a document describes, None when it describes none."""
    words = set(Cell.__dataclass_fields__)
    if not isinstance(document, Mapping) or not set(document) <= words or _has_flags(document.values()):
        return None
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
    try:
        values["groups"] = tuple(names.index(name) for name in values["groups"])
        cell = Cell(**values)
        hash(cell)
    except (KeyError, TypeError, ValueError):
        return None
    return cell


def _has_flags(values: Iterable[Any]) -> bool:
    """Truth values, which would pass as the numbers 0 and 1."""
    return any(isinstance(entry, bool) for value in values for entry in (value if isinstance(value, list | tuple) else (value,)))


def _check_partition(options: Options, steps: Sequence[_Step], findings: _Findings) -> None:
    """Every leaf of the space is in exactly one step; an open cell stands for all its leaves."""
    stated = {cell: [leaf for leaf in leaves_of(options, cell)] for cell in stated_cells(options)}
    leaves = {leaf for inside in stated.values() for leaf in inside}
    covered: Counter[Cell] = Counter()
    for step in steps:
        if step.cell in stated:
            covered.update(stated[step.cell])
        elif step.cell in leaves:
            covered[step.cell] += 1
        else:
            findings.add(f"step {step.number}: the cell is not in the space: {step.cell}")
    for leaf in leaves:
        if covered[leaf] != 1:
            findings.add(f"a cell is closed {covered[leaf]} times: {leaf}" if covered[leaf] else f"a cell is missing: {leaf}")


# ----------------------------------------------------------------------------------------------------------------------- values
class _Check:
    """Recomputes the values of a log that partitions the space."""

    def __init__(self, options: Options, steps: Sequence[_Step], findings: _Findings) -> None:
        self.options = options
        self.steps = steps
        self.findings = findings
        self.arrays = Arrays(options)
        constraints = options.model.problem.constraints
        self.demand = SAFE if constraints.memory == "safe" else FITS
        self.longest_s = constraints.max_step_time_s or np.inf
        self.by_cost = options.model.problem.objective.kind == "cost"

    def run(self) -> float | None:
        """The proven bound; what does not hold goes to the findings."""
        incumbent = self._evaluated(self._closed("evaluated"))
        self._infeasible(self._closed("infeasible"))
        cutoff = incumbent if self.by_cost else min(incumbent, self.longest_s)
        self._bounded(self._closed("bound"), cutoff)
        least_open = self._open(self._closed("open"))
        bound = min(incumbent, least_open)
        return float(bound) if np.isfinite(bound) else None

    def _closed(self, how: str) -> list[_Step]:
        """Steps closed in one way; only a bound closes an open cell whole."""
        found = [step for step in self.steps if step.closed_by == how]
        if how in ("bound", "open"):
            return found
        for step in found:
            if step.cell.is_open:
                self.findings.add(f"step {step.number}: a cell whose shares or layers are open is closed as {how}: {step.cell}")
        return [step for step in found if not step.cell.is_open]

    def _weight(self, cell: Cell) -> float:
        return price_per_hour(self.options, cell) / SECONDS_PER_HOUR if self.by_cost else 1.0

    def _evaluated(self, steps: Sequence[_Step]) -> float:
        """Values are the least prices of their cells; the least of them within the time limit."""
        least, within = self._least_prices(steps)
        for step, value in zip(steps, least, strict=True):
            if step.value is None or not _equal(step.value, value):
                self.findings.add(f"step {step.number}: evaluated as {step.value}, the least price is {value}: {step.cell}")
        return float(min(within, default=np.inf))

    def _infeasible(self, steps: Sequence[_Step]) -> None:
        """No variant of these cells fits as demanded."""
        entries, owner = self._variants(steps)
        fits = np.zeros(len(steps), dtype=bool)
        for start, prices in self.arrays.prices(entries, exact=False):
            good = np.flatnonzero(prices.verdict >= self.demand) + start
            fits[owner[good]] = True
        for step, possible in zip(steps, fits, strict=True):
            if possible:
                self.findings.add(f"step {step.number}: a layout fits in a cell closed as infeasible: {step.cell}")

    def _bounded(self, steps: Sequence[_Step], cutoff: float) -> None:
        """Values are not below the incumbent, and either the skeleton's bound or not above any price of the cell."""
        skeleton = self._skeletons(steps)
        priced = []
        for step, value in zip(steps, skeleton, strict=True):
            if step.value is None or step.value < cutoff * (1.0 - TOLERANCE):
                self.findings.add(f"step {step.number}: closed by bound {step.value} below the incumbent {cutoff}: {step.cell}")
            elif not _equal(step.value, value):
                priced.append(step)
        for step in priced:
            if step.cell.is_open:
                self.findings.add(f"step {step.number}: bound {step.value} of an open cell is not reproduced: {step.cell}")
        leaves = [step for step in priced if not step.cell.is_open]
        least, _ = self._least_prices(leaves)
        for step, value in zip(leaves, least, strict=True):
            if step.value is None or step.value > value * (1.0 + TOLERANCE):
                self.findings.add(f"step {step.number}: bound {step.value} is above a price of the cell, {value}: {step.cell}")

    def _open(self, steps: Sequence[_Step]) -> float:
        """Values of cells left open are their skeletons' bounds; the least of them."""
        for step, value in zip(steps, self._skeletons(steps), strict=True):
            if step.value is None or not _equal(step.value, value):
                self.findings.add(f"step {step.number}: open with bound {step.value}, it is {value}: {step.cell}")
        return min((step.value for step in steps if step.value is not None), default=np.inf)

    def _skeletons(self, steps: Sequence[_Step]) -> np.ndarray:
        """Bound of each cell or of the open cell it comes from, whichever is greater."""
        cells = [step.cell for step in steps]
        weights = np.array([self._weight(cell) for cell in cells])
        own = self.arrays.skeletons(cells)
        parents = self.arrays.skeletons([cell.parent or cell for cell in cells])
        found: np.ndarray = np.maximum(own, parents) * weights
        return found

    def _least_prices(self, steps: Sequence[_Step]) -> tuple[np.ndarray, list[float]]:
        """Least price of each cell over what fits as demanded, and all prices within the time limit.

        Nothing whose bound is above the step's own value needs its exact price.
        """
        least = np.full(len(steps), np.inf)
        within: list[float] = []
        entries, owner = self._variants(steps)
        if not entries:
            return least, within
        weights = np.array([self._weight(step.cell) for step in steps])
        values = np.array([np.inf if step.value is None else step.value for step in steps])
        limit = (values / weights * (1.0 + 10.0 * TOLERANCE))[owner]
        for start, prices in self.arrays.prices(entries, exact=True, at_most_s=limit):
            mine = owner[start : start + len(prices.seconds)]
            seconds = np.where(prices.verdict >= self.demand, prices.seconds, np.inf)
            np.minimum.at(least, mine, seconds * weights[mine])
            within += [float(value) for value in (seconds * weights[mine])[seconds <= self.longest_s] if np.isfinite(value)]
        return least, within

    def _variants(self, steps: Sequence[_Step]) -> tuple[list[Entry], np.ndarray]:
        """Every legal choice inside the cells, and the step of each."""
        entries, owner = [], []
        cells = [step.cell for step in steps]
        for zero, inside in self.options.states():
            for percent in self.options.offload_percents():
                copies = [shard_copies(self.options, cell)[0] if inside and zero else 1 for cell in cells]
                for replicas in sorted(set(copies)):
                    alike = [index for index, count in enumerate(copies) if count == replicas]
                    legal = legal_at(self.options, [cells[index] for index in alike], zero, replicas, percent)
                    for index in np.array(alike)[legal]:
                        chosen = [v for v in variants_of(self.options, cells[index]) if (v.zero, v.inside_node) == (zero, inside)]
                        entries += [Entry(cells[index], variant, percent) for variant in chosen]
                        owner += [int(index)] * len(chosen)
        return entries, np.array(owner, dtype=np.int64)


def _equal(one: float, two: float) -> bool:
    return isclose(one, two, rel_tol=TOLERANCE)
