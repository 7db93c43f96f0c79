"""What a framework's limits cost: the problem searched again under structural rules only, and the rules its best plan breaks."""

from __future__ import annotations

from collections.abc import Callable

from solver.errors import SolverError
from solver.exporters import expressible
from solver.layout import Layout
from solver.plan import Explanation, Plan
from solver.problem import Problem, normalise
from solver.search.describe import summary
from solver.search.session import open_session
from solver.search.space import Stopped

WORTH_SAYING = 1e-3
FREE_GAP = 0.01
"""the free search only serves the comparison: it may stop this close to its best"""
MOST_LEAVES = 4_000_000
"""larger free spaces are searched with the plan's own degrees only"""
MOST_REASONS = 4


def framework_gap(problem: Problem, plan: Plan, should_stop: Callable[[], bool]) -> tuple[Explanation, ...]:
    """How much faster a framework without limits would be, and which rules stand in the way; empty for `any`."""
    name = problem.framework.name
    if name == "any":
        return ()
    found = _free_plan(problem, {}, should_stop) or _free_plan(problem, _degrees(plan.layout), should_stop)
    if found is None:
        return ()
    freed, scope = found
    ours, free = plan.prediction.step_time_s, freed.prediction.step_time_s
    if free >= ours * (1.0 - WORTH_SAYING):
        text = f"{name} expresses what is best under structural rules alone ({scope})."
        return (Explanation(code="framework_complete", text=text),)
    text = (
        f"Under structural rules alone ({scope}) a step would take {free:.4g} s instead of {ours:.4g} s "
        f"({free / ours - 1.0:+.1%}): "
        f"{summary(freed.layout)}. {name} cannot run that: {'; '.join(_reasons(problem, freed.layout))}."
    )
    return (Explanation(code="framework_limits", text=text),)


def _free_plan(problem: Problem, degrees: dict[str, int], should_stop: Callable[[], bool]) -> tuple[Plan, str] | None:
    """The best plan for `any`, with the plan's degrees if given; None when there is none or the space is too large."""
    if should_stop():
        return None
    constraints = problem.constraints
    if degrees:
        constraints = constraints.model_copy(update={"fixed": {**constraints.fixed, **degrees}, "allowed": {}})
    framework = problem.framework.model_copy(update={"name": "any", "version": "latest-known"})
    gap = max(problem.search.target_gap, FREE_GAP)
    search = problem.search.model_copy(update={"target_gap": gap, "proof": False, "alternatives": 0})
    changes = {"constraints": constraints, "framework": framework, "search": search}
    try:
        session = open_session(normalise(problem.model_copy(update=changes)), should_stop)
        if not degrees and session.space.leaves > MOST_LEAVES:
            return None
        state = session.run(should_stop, lambda progress: None)
        if state.best is None:
            return None
        scope = "with the same degrees" if degrees else f"searched to {gap:.0%}"
        return session.certified_plan(state.best), scope
    except (SolverError, Stopped):
        return None


def _degrees(layout: Layout) -> dict[str, int]:
    parts = layout.stages[0].parts
    degrees = {axis: parts[0].size(axis) for axis in ("tp", "cp", "ep", "etp")}
    return {**degrees, "pp": layout.pp, "vpp": layout.vpp, "mbs": layout.mbs, "dp": sum(part.size("dp") for part in parts)}


def _reasons(problem: Problem, layout: Layout) -> list[str]:
    """What the framework refuses of a layout, each once."""
    fields = expressible(problem, layout, problem.framework.name)
    reasons = list(dict.fromkeys(field.message for field in fields))
    more = [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    return [*reasons[:MOST_REASONS], *more] or ["a choice its rules do not name"]
