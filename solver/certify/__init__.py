"""Independent re-check of a plan: a plan that fails never leaves the solver.

Recounts layers, devices, ranks and shares, asks the framework's rules, adds up the bytes of one rank of every class tensor by
tensor (`certify.memory`), and takes the step time from the discrete-event run of the cost ledger. Imports neither search nor
bounds nor evaluate, so that their mistakes cannot hide here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

from solver.balance.ledger import StepCosts, ledger
from solver.certify.constraints import constraint_findings
from solver.certify.layout import layout_findings, replica_micro_batches
from solver.certify.memory import RankBytes, rank_bytes, rank_classes
from solver.cost.scenarios import ScenarioSet, scenario_set
from solver.errors import CertificationFailed, SolverError
from solver.frameworks import get_rule_set
from solver.layout import Layout
from solver.plan import MemoryEntry, Plan, Prediction, plan_id
from solver.problem import Problem, normal_form
from solver.simulate import simulate

MEMORY_TOLERANCE = 1e-3
TIME_TOLERANCE = 5e-3
VERDICTS = ("no", "fits", "safe")


def certify(problem: Problem, plan: Plan) -> None:
    """Raise CertificationFailed, listing every finding, unless the plan of a normalised problem holds what it says."""
    findings = list(structure_findings(problem, plan.layout))
    if plan.id != plan_id(normal_form(problem), plan.layout, plan.versions):
        findings.append("the id is not that of the problem, layout and versions")
    if not findings:
        findings += memory_findings(problem, plan.layout, plan.prediction)
        findings += time_findings(problem, plan.layout, plan.prediction)
    if findings:
        raise CertificationFailed(findings)


def structure_findings(problem: Problem, layout: Layout) -> Iterator[str]:
    """What does not add up, breaks a constraint, or is refused or silently changed by the framework."""
    counted = list(layout_findings(problem, layout))
    yield from counted
    if counted:
        return
    yield from constraint_findings(problem, layout)
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    for violation in rules.violations(problem, layout):
        if violation.severity != "changed":
            yield f"rule {violation.rule}: {violation.message}"


# -------------------------------------------------------------------------------------------------------------------- memory
def memory_findings(problem: Problem, layout: Layout, prediction: Prediction) -> Iterator[str]:
    """Every stage and group has one entry, and it is that of its worst class; classes are all parts of all stages."""
    worst: dict[tuple[int, str], RankBytes] = {}
    for own in (rank_bytes(rank) for rank in rank_classes(problem, layout)):
        key = (own.stage, own.group)
        if key not in worst or own.device > worst[key].device:
            worst[key] = own
    stated = [(entry.stage, entry.group) for entry in prediction.memory_bytes]
    if sorted(stated) != sorted(worst):
        yield f"memory is given for {stated}, the classes of equal ranks are {list(worst)}"
        return
    for entry in prediction.memory_bytes:
        yield from _entry_findings(entry, worst[entry.stage, entry.group])
    least = min((own.verdict for own in worst.values()), key=VERDICTS.index)
    if prediction.verdict != least and not any(_on_edge(own) for own in worst.values()):
        yield f"the verdict is {prediction.verdict}, recounted {least}"


def _entry_findings(entry: MemoryEntry, own: RankBytes) -> Iterator[str]:
    where = f"memory of stage {entry.stage} on {entry.group}"
    low, high = entry.device_interval
    pairs = [
        ("allocated", entry.allocated, own.allocated),
        ("sum of items", sum(entry.items.values()), own.allocated),
        ("reserved", entry.reserved, own.reserved),
        ("reserved", entry.allocated + entry.allocator, own.reserved),
        ("device", entry.device, own.device),
        ("device", entry.reserved + entry.context, own.device),
        ("lower end", low, own.device_interval[0]),
        ("upper end", high, own.device_interval[1]),
        ("limit", entry.limit, own.limit),
        ("capacity", entry.capacity, own.capacity),
        ("host", entry.host or 0.0, own.host),
    ]
    for name, stated, counted in pairs:
        if not isclose(stated, counted, rel_tol=MEMORY_TOLERANCE, abs_tol=1.0):
            yield f"{where}: {name} is {stated:.6g} bytes, recounted {counted:.6g}"
    if entry.verdict != own.verdict and not _on_edge(own):
        yield f"{where}: the verdict is {entry.verdict}, recounted {own.verdict}"


def _on_edge(own: RankBytes) -> bool:
    """Whether rounding may decide the verdict."""
    return any(isclose(value, own.limit, rel_tol=1e-9) for value in (own.device, own.device_interval[1]))


# ---------------------------------------------------------------------------------------------------------------------- time
def time_findings(problem: Problem, layout: Layout, prediction: Prediction) -> Iterator[str]:
    """The simulated step is the stated one, its breakdown adds up to it, and all rows of all scenarios are dealt out."""
    try:
        costs = ledger(problem, layout)
        simulated = simulate(costs).step_time_s
    except SolverError as error:
        yield f"the step cannot be timed: {error}"
        return
    scenarios = scenario_set(problem)
    yield from _dealing_findings(scenarios, layout, costs)
    stated = prediction.step_time_s
    if not isclose(stated, simulated, rel_tol=TIME_TOLERANCE):
        yield f"the step takes {stated:.6g} s, simulated {simulated:.6g} s"
    parts = prediction.time_breakdown_s
    total = parts.compute + parts.bubble + parts.imbalance + parts.optimizer
    total += sum(axis.exposed for axis in parts.communication.values())
    if not isclose(stated, total, rel_tol=TIME_TOLERANCE):
        yield f"the breakdown adds up to {total:.6g} s of {stated:.6g} s"
    yield from _rate_findings(problem, scenarios, layout, prediction, simulated)


def _rate_findings(
    problem: Problem, scenarios: ScenarioSet, layout: Layout, prediction: Prediction, step_s: float
) -> Iterator[str]:
    """Real tokens a second, a device and a unit of money follow from the simulated step."""
    rows = layout.global_batch_sequences() / scenarios.rows
    tokens_per_s = float(scenarios.real_tokens.mean()) * rows / step_s
    parts = [part for stage in layout.stages for part in stage.parts]
    rates = [
        ("tokens_per_s", prediction.tokens_per_s, tokens_per_s),
        ("tokens_per_s_per_device", prediction.tokens_per_s_per_device, tokens_per_s / sum(p.device_count for p in parts)),
    ]
    if prediction.cost is not None:
        prices = {group.name: group.price_per_device_hour or 0.0 for group in problem.cluster.groups}
        per_s = sum(prices[entry.group] * entry.count for part in parts for entry in part.devices) / 3600
        rates.append(("cost per_1e9_tokens", prediction.cost.per_1e9_tokens, per_s / tokens_per_s * 1e9))
    for name, stated, counted in rates:
        if not isclose(stated, counted, rel_tol=TIME_TOLERANCE):
            yield f"{name} is {stated:.6g}, the simulated step gives {counted:.6g}"


def _dealing_findings(scenarios: ScenarioSet, layout: Layout, costs: StepCosts) -> Iterator[str]:
    if (costs.stages, costs.vpp) != (layout.pp, layout.vpp):
        yield "the cost ledger describes another pipeline"
        return
    wanted = replica_micro_batches(layout.stages[0])
    for number in range(scenarios.count):
        replicas = [row for chain in costs.chains for row in chain.attention_work[number]]
        if [row.shape[0] for row in replicas] != wanted:
            yield f"scenario {number}: the replicas take other micro-batches than the layout gives them"
        elif layout.global_batch_sequences() == scenarios.rows:
            dealt = sum(float(row.sum()) for row in replicas)
            if not isclose(dealt, float(scenarios.work[number].sum()), rel_tol=1e-9):
                yield f"scenario {number}: the rows dealt out are not the rows of the batch"
