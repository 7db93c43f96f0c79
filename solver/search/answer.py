"""The result document of a search: plan, alternatives, Pareto points, certificate, explanation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.evaluate import Evaluator
from solver.exporters import expressible_in
from solver.layout import Layout
from solver.plan import (
    Alternative,
    Cells,
    Certificate,
    FrameworkName,
    Pareto,
    ParetoPoint,
    Plan,
    Progress,
    ProofStep,
    Result,
    Space,
)
from solver.problem import Problem, normalise
from solver.search.describe import explain, summary, time_to_finish, why_slower
from solver.search.driver import Found, SearchState
from solver.search.framework_gap import framework_gap
from solver.search.proof import proof_steps
from solver.search.relax import Relaxer
from solver.search.seeds import Known, OnIncumbent, Seed, known_at_start
from solver.search.session import Session, open_session
from solver.search.space import Stopped

OPTIMAL_GAP = 1e-6
MOST_PARETO_POINTS = 8
MOST_RISKY = 2


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A result and every plan it names, by id; `problems` holds the normalised problem of each."""

    result: Result
    plans: dict[str, Plan]
    problems: dict[str, Problem]


def search(
    problem: Problem,
    *,
    should_stop: Callable[[], bool] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_incumbent: OnIncumbent | None = None,
    seeds: Sequence[Layout] = (),
    known_bound: float | None = None,
) -> Outcome:
    """Best plan of a problem with its certificate; raises InvalidProblem for what is refused or too large.

    `problem` may be as parsed: pointers of relaxations then follow the user's order of groups. `should_stop` is asked between
    blocks of cells; `on_progress` gets closed and all cells, incumbent, bound and gap; `on_incumbent`, before the progress that
    tells it, the value of each new incumbent and a call that makes its layout. `seeds` (layouts of this or near problems) and
    `known_bound` (proven before for this problem, by the same versions) are what the search begins with: see `seeds`.
    """
    stop = should_stop or (lambda: False)
    normal = normalise(problem)
    known = known_at_start(Evaluator(normal), seeds, known_bound) if seeds else Known(bound=known_bound)
    try:
        session = open_session(normal, stop)
    except Stopped:
        return _nothing(normal, known)
    tell = known.telling(on_progress or (lambda progress: None))
    tell_incumbent = known.telling_incumbents(on_incumbent or (lambda value, layout: None))
    if known != Known():
        tell(Progress(done=0, total=session.space.leaves, incumbent=None, bound=None, gap=None))
    state = session.run(stop, tell, tell_incumbent)
    if state.stopped_by == "time":
        if known.bound is not None and not normal.search.proof:
            state.lower_bound = max(state.lower_bound, min(known.bound, state.best.value if state.best else np.inf))
        if known.seed is not None and (state.best is None or known.seed.value < state.best.value):
            return _with_seed(session, state, known.seed, stop)
    if state.best is None:
        return _without_plan(problem, session, state, stop)
    return _with_plan(session, state, stop)


def _nothing(problem: Problem, known: Known) -> Outcome:
    """Stopped while the space was still being laid out: nothing counted, no more than what was known before."""
    framework = FrameworkName(name=problem.framework.name, version=problem.framework.version)
    cost = problem.objective.kind == "cost"
    seed = known.seed
    bound = known.bound if seed is None else min(known.bound or 0.0, seed.value)
    certificate = Certificate(
        lower_bound_s=None if cost else bound,
        gap=None if seed is None or bound is None else (seed.value - bound) / seed.value,
        cells=Cells(total=0, bound=0, infeasible=0, evaluated=0, open=0),
        space=Space(dimensions={}, framework=framework, count=0),
    )
    if seed is None:
        result = Result(status="unknown", certificate=certificate, stopped_by="time", reproducible=False)
        return Outcome(result=result, plans={}, problems={})
    result = Result(
        status="feasible",
        plan=seed.plan,
        alternatives=(),
        pareto=Pareto(partial=True, points=()),
        certificate=certificate,
        explanation=explain(seed.plan, None),
        stopped_by="time",
        reproducible=False,
    )
    return Outcome(result=result, plans={seed.plan.id: seed.plan}, problems={seed.plan.id: problem})


def _with_plan(session: Session, state: SearchState, stop: Callable[[], bool]) -> Outcome:
    best = state.best
    assert best is not None
    plan = session.certified_plan(best)
    plans = {plan.id: plan}
    alternatives = _alternatives(session, state, plan, plans)
    gap = _gap(state, best)
    certificate = _certificate(session, state, gap)
    sampled = session.evaluator.sampling_interval(plan.layout)
    certificate = certificate.model_copy(update={"sampling_interval_s": sampled})
    proven = gap <= OPTIMAL_GAP
    runner_up = next((plans[entry.plan_id] for entry in alternatives if entry.verdict == plan.prediction.verdict), None)
    result = Result(
        status="optimal" if proven else "feasible",
        plan=plan,
        alternatives=alternatives,
        pareto=_pareto(session, state, plans),
        certificate=certificate,
        explanation=(
            *explain(plan, runner_up),
            *framework_gap(session.problem, plan, stop),
            *time_to_finish(session.problem, plan),
        ),
        stopped_by="proof" if proven else state.stopped_by,
        reproducible=state.stopped_by != "time",
    )
    return Outcome(result=result, plans=plans, problems=dict.fromkeys(plans, session.problem))


def _with_seed(session: Session, state: SearchState, seed: Seed, stop: Callable[[], bool]) -> Outcome:
    """Stopped by the clock before anything as good as the seed was found: the seed is the plan."""
    state.lower_bound = min(state.lower_bound, seed.value)
    gap = max(0.0, (seed.value - state.lower_bound) / seed.value)
    plans = {seed.plan.id: seed.plan}
    certified = [session.certified_plan(found) for found in state.pool[: session.problem.search.alternatives]]
    others = [plan for plan in certified if plan.id != seed.plan.id]
    alternatives = tuple(_alternative(seed.plan, plan, plans) for plan in others)
    proven = gap <= OPTIMAL_GAP
    result = Result(
        status="optimal" if proven else "feasible",
        plan=seed.plan,
        alternatives=alternatives,
        pareto=_pareto(session, state, plans),
        certificate=_certificate(session, state, gap),
        explanation=(*explain(seed.plan, others[0] if others else None), *time_to_finish(session.problem, seed.plan)),
        stopped_by="proof" if proven else state.stopped_by,
        reproducible=False,
    )
    return Outcome(result=result, plans=plans, problems=dict.fromkeys(plans, session.problem))


def _without_plan(problem: Problem, session: Session, state: SearchState, stop: Callable[[], bool]) -> Outcome:
    certificate = _certificate(session, state, None)
    if state.tally.open:
        result = Result(
            status="unknown",
            certificate=certificate,
            stopped_by=state.stopped_by,
            reproducible=state.stopped_by != "time",
        )
        return Outcome(result=result, plans={}, problems={})
    relaxer = Relaxer(problem, stop)
    infeasible = relaxer.infeasible(session, state)
    certificate = certificate.model_copy(update={"lower_bound_s": None})
    result = Result(
        status="infeasible", certificate=certificate, infeasible=infeasible, stopped_by="proof", reproducible=not stop()
    )
    return Outcome(result=result, plans=relaxer.plans, problems={key: relaxer.problems[key] for key in relaxer.plans})


def _gap(state: SearchState, best: Found) -> float:
    return max(0.0, (best.value - state.lower_bound) / best.value) if best.value > 0.0 else 0.0


def _certificate(session: Session, state: SearchState, gap: float | None) -> Certificate:
    problem = session.problem
    tally = state.tally
    closed = tally.bound + tally.infeasible + tally.evaluated
    bound = state.lower_bound if np.isfinite(state.lower_bound) else None
    cost = problem.objective.kind == "cost"
    tokens = float(session.model.scenarios.real_tokens.mean())
    steps: tuple[ProofStep, ...] | None = None
    if problem.search.proof:
        steps = proof_steps(session, state)
    return Certificate(
        lower_bound_s=None if cost else bound,
        lower_bound_per_1e9_tokens=bound / tokens * 1e9 if cost and bound is not None else None,
        gap=gap,
        cells=Cells(
            total=closed + tally.open, bound=tally.bound, infeasible=tally.infeasible, evaluated=tally.evaluated, open=tally.open
        ),
        space=Space(
            dimensions=session.space.dimensions,
            framework=FrameworkName(name=problem.framework.name, version=problem.framework.version),
            count=session.space.count,
        ),
        proof=steps,
    )


def _signature(found: Found) -> tuple[int, ...]:
    """What makes two plans truly different: structure, devices and degrees."""
    cell = found.cell
    return (
        int(cell.family[0]),
        *(int(value) for value in cell.group[0]),
        *(int(value) for value in cell.tp[0]),
        int(cell.cp[0, 0]),
        int(cell.ep[0, 0]),
        int(cell.stages[0]),
        *(int(value) for value in cell.dp[0]),
    )


def _alternatives(session: Session, state: SearchState, best: Plan, plans: dict[str, Plan]) -> tuple[Alternative, ...]:
    wanted = session.problem.search.alternatives
    entries: list[Alternative] = []
    seen = {_signature(state.pool[0])}
    for found in state.pool[1:]:
        if len(entries) >= wanted:
            break
        if _signature(found) in seen:
            continue
        seen.add(_signature(found))
        entries.append(_alternative(best, session.certified_plan(found), plans))
    runnable = _expressible(session, state, seen) if not best.expressible_in else None
    if runnable is not None and wanted:
        entries = [*entries[: wanted - 1], _alternative(best, runnable, plans)]
    risky = [found for found in state.risky if found.value < state.pool[0].value][:MOST_RISKY]
    if entries and risky:
        entries = entries[: max(1, wanted - len(risky))]
    for found in risky[: max(0, wanted - len(entries))]:
        plan = session.certified_plan(found)
        if plan.prediction.step_time_s < best.prediction.step_time_s:
            entries.append(_alternative(best, plan, plans))
    return tuple(entries)


def _expressible(session: Session, state: SearchState, seen: set[tuple[int, ...]]) -> Plan | None:
    """The best priced plan of other degrees that some framework can run, when the best plan of all is not one."""
    for found in state.pool[1:]:
        if _signature(found) not in seen and expressible_in(session.problem, session.layout(found)):
            return session.certified_plan(found)
    return None


def _alternative(best: Plan, plan: Plan, plans: dict[str, Plan]) -> Alternative:
    plans[plan.id] = plan
    step = plan.prediction.step_time_s
    low, high = best.prediction.step_time_interval_s
    if plan.prediction.verdict == best.prediction.verdict or step > best.prediction.step_time_s:
        why = why_slower(best, plan)
        if plan.expressible_in and not best.expressible_in:
            why += f"; {', '.join(plan.expressible_in)} can run it"
    else:
        why = "faster, but the upper end of its memory interval does not fit: it may die"
    return Alternative(
        plan_id=plan.id,
        summary=summary(plan.layout),
        step_time_s=step,
        slower_by_fraction=step / best.prediction.step_time_s - 1.0,
        tied=low <= step <= high,
        verdict=plan.prediction.verdict,
        why=why,
    )


def _pareto(session: Session, state: SearchState, plans: dict[str, Plan]) -> Pareto:
    """Undominated in step time, cost and memory headroom among the priced layouts."""
    front: list[tuple[Found, float]] = []
    for found in sorted(state.front, key=lambda entry: entry.seconds):
        price = session.evaluator.price_per_hour(_devices(session, found))
        cost = found.seconds * price if price is not None else found.seconds * float(found.cell.devices.sum())
        if all(cost < other or found.headroom_bytes > kept.headroom_bytes for kept, other in front):
            front.append((found, cost))
    points = []
    shown = [found for found, _ in front[:MOST_PARETO_POINTS]]
    if state.best is not None and all(found.cell is not state.best.cell for found in shown):
        shown = [state.best, *shown[: MOST_PARETO_POINTS - 1]]
    for found in shown:
        plan = session.certified_plan(found)
        plans[plan.id] = plan
        headroom = min(entry.limit - entry.device for entry in plan.prediction.memory_bytes)
        points.append(
            ParetoPoint(
                plan_id=plan.id,
                step_time_s=plan.prediction.step_time_s,
                cost_per_1e9_tokens=plan.prediction.cost.per_1e9_tokens if plan.prediction.cost else None,
                memory_headroom_bytes=headroom,
            )
        )
    partial = state.tally.bound > 0 or state.tally.open > 0 or len(front) > MOST_PARETO_POINTS
    return Pareto(partial=partial, points=tuple(points))


def _devices(session: Session, found: Found) -> list[int]:
    used = [0] * len(session.model.networks)
    for slot in range(2):
        used[int(found.cell.group[0, slot])] += int(found.cell.devices[0, slot])
    return used
