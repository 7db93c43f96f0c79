"""What a framework's limits cost: the same skeleton searched again under structural rules only."""

from __future__ import annotations

from collections.abc import Callable

from solver.errors import SolverError
from solver.layout import Layout
from solver.plan import Explanation, Plan
from solver.problem import Problem, normalise
from solver.search.describe import summary
from solver.search.session import open_session

WORTH_SAYING = 1e-3


def framework_gap(problem: Problem, plan: Plan, should_stop: Callable[[], bool]) -> tuple[Explanation, ...]:
    """How much faster the plan's own degrees would be in a framework without limits, and by which choices; empty for `any`."""
    if problem.framework.name == "any":
        return ()
    freed = _free_plan(problem, plan.layout, should_stop)
    if freed is None:
        return ()
    ours, free = plan.prediction.step_time_s, freed.prediction.step_time_s
    name = problem.framework.name
    if free >= ours * (1.0 - WORTH_SAYING):
        text = f"{name} expresses the best layout of these degrees: structural rules alone allow nothing faster."
        return (Explanation(code="framework_complete", text=text),)
    choices = "; ".join(_differences(plan.layout, freed.layout))
    text = (
        f"With the same degrees but without the limits of {name} the step would take {free:.4g} s instead of {ours:.4g} s "
        f"({free / ours - 1.0:+.1%}): {choices}."
    )
    return (Explanation(code="framework_limits", text=text),)


def _free_plan(problem: Problem, layout: Layout, should_stop: Callable[[], bool]) -> Plan | None:
    part = layout.stages[0].parts[0]
    degrees = {axis: part.size(axis) for axis in ("tp", "cp", "ep", "etp")}
    fixed = {
        **degrees,
        "pp": layout.pp,
        "vpp": layout.vpp,
        "mbs": layout.mbs,
        "dp": sum(p.size("dp") for p in layout.stages[0].parts),
    }
    constraints = problem.constraints.model_copy(update={"fixed": fixed, "allowed": {}})
    framework = problem.framework.model_copy(update={"name": "any", "version": "latest-known"})
    search = problem.search.model_copy(update={"target_gap": 0.0, "proof": False, "alternatives": 0})
    try:
        session = open_session(
            normalise(problem.model_copy(update={"constraints": constraints, "framework": framework, "search": search}))
        )
        state = session.run(should_stop, lambda progress: None)
        return session.certified_plan(state.best) if state.best is not None else None
    except SolverError:
        return None


def _differences(ours: Layout, free: Layout) -> list[str]:
    """Choices of the free layout that ours cannot or does not make."""
    found = []
    one, two = ours.stages[0].strategy, free.stages[0].strategy
    if one.shard.zero != two.shard.zero:
        found.append(f"ZeRO {two.shard.zero} instead of {one.shard.zero}")
    if one.shard.optimizer.replicate != two.shard.optimizer.replicate and two.shard.zero:
        found.append("shard groups inside a node")
    if one.offload.optimizer != two.offload.optimizer:
        found.append(f"{two.offload.optimizer:.0%} of the optimizer in host memory instead of {one.offload.optimizer:.0%}")
    if any(len(a.layers) != len(b.layers) for a, b in zip(ours.stages, free.stages, strict=True)):
        found.append(f"layers per stage {[len(stage.layers) for stage in free.stages]}")
    if _recomputed(ours) != _recomputed(free):
        found.append(f"{_recomputed(free)} recomputed layers, chosen stage by stage, instead of {_recomputed(ours)}")
    return found or [summary(free)]


def _recomputed(layout: Layout) -> int:
    return sum(stage.recompute_of(layer).kind != "none" for stage in layout.stages for layer in stage.layers)
