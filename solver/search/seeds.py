"""What is known before a search: layouts to begin with, and a bound proven for this very problem.

A seed never cuts the space: what the search visits, and so every byte of an answer that is proven or stopped by a work limit,
is the same with and without seeds. A seed is the incumbent that is reported from the first moment, and it is the answer of a
search that the clock stopped before it had found anything as good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from solver.certify import certify, structure_findings
from solver.errors import SolverError
from solver.evaluate import Evaluator
from solver.layout import Layout
from solver.plan import Plan, Progress
from solver.search.adapt import adapted

OnIncumbent = Callable[[float, Callable[[], Layout]], None]
"""told a value and how to get its layout"""
SECONDS_PER_HOUR = 3600.0
MOST_ADAPTATIONS = 10
"""of one seed: evaluating and certifying a layout takes some milliseconds"""


@dataclass(frozen=True, slots=True)
class Seed:
    """A certified plan with the demanded verdict, and its objective value."""

    plan: Plan
    value: float


@dataclass(frozen=True, slots=True)
class Known:
    """The best seed, if one is good, and a bound below which no plan of the space is."""

    seed: Seed | None = None
    bound: float | None = None

    def told(self, progress: Progress) -> Progress:
        """The progress of a search that began with this."""
        values = [value for value in (progress.incumbent, self.seed.value if self.seed else None) if value is not None]
        bounds = [bound for bound in (progress.bound, self.bound) if bound is not None]
        incumbent, bound = min(values, default=None), max(bounds, default=None)
        if incumbent is not None and bound is not None:
            bound = min(bound, incumbent)
        gap = (incumbent - bound) / incumbent if incumbent and bound is not None else None
        return Progress(done=progress.done, total=progress.total, incumbent=incumbent, bound=bound, gap=gap)

    def telling(self, on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """A callback that adds what is known."""
        return lambda progress: on_progress(self.told(progress))

    def telling_incumbents(self, on_incumbent: OnIncumbent) -> OnIncumbent:
        """A callback that is told the seed now and later only what is better."""
        seed = self.seed
        if seed is None:
            return on_incumbent
        on_incumbent(seed.value, lambda: seed.plan.layout)
        return lambda value, layout: on_incumbent(value, layout) if value < seed.value else None


def known_at_start(evaluator: Evaluator, seeds: Sequence[Layout], bound: float | None) -> Known:
    """The best of the seeds that can be used here, as they are or adapted."""
    best: Seed | None = None
    for layout in seeds:
        tries = (_judged(evaluator, proposal) for proposal in _proposals(evaluator, layout))
        seed = next((found for found in tries if found is not None), None)
        if seed is not None and (best is None or seed.value < best.value):
            best = seed
    return Known(best, bound)


def _proposals(evaluator: Evaluator, layout: Layout) -> Iterator[Layout]:
    """A seed as it is, and what it can be turned into."""
    yield layout
    yield from islice(adapted(evaluator.model, layout), MOST_ADAPTATIONS)


def _judged(evaluator: Evaluator, layout: Layout) -> Seed | None:
    """The seed, or None when it is illegal, does not fit as demanded, or fails its re-check."""
    try:
        if any(structure_findings(evaluator.problem, layout)):
            return None
        plan = evaluator.plan(layout)
        if not _demanded(evaluator, plan):
            return None
        certify(evaluator.problem, plan)
    except SolverError:
        return None
    value = _value(evaluator, plan)
    return None if value is None else Seed(plan, value)


def _demanded(evaluator: Evaluator, plan: Plan) -> bool:
    """Whether the plan's memory verdict is one that the search recommends, and its time and price are within the caps."""
    constraints = evaluator.problem.constraints
    enough = ("safe", "fits") if constraints.memory == "fits" else ("safe",)
    price = evaluator.price_per_hour(_used_devices(evaluator, plan))
    in_time = constraints.max_step_time_s is None or plan.prediction.step_time_s <= constraints.max_step_time_s
    in_price = constraints.max_price_per_hour is None or (price is not None and price <= constraints.max_price_per_hour)
    return plan.prediction.verdict in enough and in_time and in_price


def _used_devices(evaluator: Evaluator, plan: Plan) -> list[int]:
    """Devices in use of every group."""
    used = {group.name: 0 for group in evaluator.problem.cluster.groups}
    for stage in plan.layout.modules[0].stages:
        for part in stage.parts:
            for devices in part.devices:
                used[devices.group] += devices.count
    return list(used.values())


def _value(evaluator: Evaluator, plan: Plan) -> float | None:
    """The plan's value in the objective's unit, as the driver counts it."""
    seconds = plan.prediction.step_time_s
    if evaluator.problem.objective.kind != "cost":
        return seconds
    price = evaluator.price_per_hour(_used_devices(evaluator, plan))
    return None if price is None else seconds * price / SECONDS_PER_HOUR
