"""What an infeasible problem would need: every relaxation is searched and its plan certified before it is offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solver.cost.states import state_bytes
from solver.errors import SolverError
from solver.plan import Change, Infeasible, Plan, Relaxation
from solver.problem import Problem, normalise, parameter_count
from solver.search.driver import SearchState
from solver.search.session import Session, open_session
from solver.search.space import Stopped

QUICK_GAP = 0.25
"""a relaxation is a hint: its plan need not be the best, only close"""
MOST_NODES_FACTOR = 64
WORDS_WITH_ALTERNATIVES = (
    "offload_optimizer",
    "recompute",
    "zero",
    "mbs",
    "tp",
    "pp",
    "cp",
    "dp",
    "ep",
    "etp",
    "vpp",
    "schedule",
)


class Relaxer:
    """Finds the smallest changes of a problem (as its user wrote the order of groups) that make it feasible."""

    def __init__(self, original: Problem, should_stop: Callable[[], bool]) -> None:
        self.original = original
        self.should_stop = should_stop
        self.plans: dict[str, Plan] = {}
        self.problems: dict[str, Problem] = {}

    def infeasible(self, session: Session, state: SearchState) -> Infeasible:
        """Binding constraint, in words, and what would help."""
        binding, text = _binding(session, state)
        found = (self._slower(), *self._without_words(), self._risk(), *self._more_nodes())
        relaxations = [entry for entry in found if entry is not None]
        return Infeasible(binding=binding, text=text, relaxations=tuple(relaxations))

    def _slower(self) -> Relaxation | None:
        """Without the cap on the step time."""
        constraints = self.original.constraints
        if constraints.max_step_time_s is None or self.should_stop():
            return None
        plan = self._solve(constraints=constraints.model_copy(update={"max_step_time_s": None}))
        if plan is None:
            return None
        seconds = plan.prediction.step_time_s
        change = Change(pointer="/constraints/max_step_time_s", value=seconds)
        return self._relaxation([change], f"A step may take {seconds:.4g} s.", plan)

    def _without_words(self) -> list[Relaxation | None]:
        """Drop one word of the constraints; offload is named with the value the plan uses."""
        constraints = self.original.constraints
        found: list[Relaxation | None] = []
        for word in WORDS_WITH_ALTERNATIVES:
            place = next((name for name in ("fixed", "allowed") if word in getattr(constraints, name)), None)
            if place is None or self.should_stop():
                continue
            rest = {name: value for name, value in getattr(constraints, place).items() if name != word}
            plan = self._solve(constraints=constraints.model_copy(update={place: rest}))
            if plan is not None:
                value = _value_used(plan, word)
                shown = value if place == "fixed" else [value]
                change = Change(pointer=f"/constraints/{place}/{word}", value=shown)
                found.append(self._relaxation([change], f"{word} = {value}{_host_words(plan)}.", plan))
        return found

    def _risk(self) -> Relaxation | None:
        """Accept plans whose memory interval does not fit entirely."""
        if self.original.constraints.memory == "fits" or self.should_stop():
            return None
        plan = self._solve(constraints=self.original.constraints.model_copy(update={"memory": "fits"}))
        if plan is None:
            return None
        change = Change(pointer="/constraints/memory", value="fits")
        return self._relaxation([change], "Accept a plan that fits in the middle of its memory interval only: it may die.", plan)

    def _more_nodes(self) -> list[Relaxation | None]:
        """The smallest number of nodes of each group that fits."""
        found: list[Relaxation | None] = []
        for index, group in enumerate(self.original.cluster.groups):
            low, high = group.nodes, group.nodes
            plan = None
            while plan is None and high < group.nodes * MOST_NODES_FACTOR and not self.should_stop():
                low, high = high, high * 2
                plan = self._with_nodes(index, high)
            while plan is not None and high - low > 1 and not self.should_stop():
                middle = (low + high) // 2
                smaller = self._with_nodes(index, middle)
                low, high, plan = (middle, high, plan) if smaller is None else (low, middle, smaller)
            if plan is not None:
                change = Change(pointer=f"/cluster/groups/{index}/nodes", value=high)
                devices = high * group.devices_per_node
                text = f"The smallest number of {group.name} nodes found to fit: {high} ({devices} devices)."
                found.append(self._relaxation([change], text, plan))
        return found

    def _with_nodes(self, index: int, nodes: int) -> Plan | None:
        groups = list(self.original.cluster.groups)
        group = groups[index]
        last = group.fabric[-1].model_copy(update={"span_devices": nodes * group.devices_per_node})
        groups[index] = group.model_copy(update={"nodes": nodes, "fabric": (*group.fabric[:-1], last)})
        return self._solve(cluster=self.original.cluster.model_copy(update={"groups": tuple(groups)}))

    def _solve(self, **changes: Any) -> Plan | None:
        """A certified plan of the changed problem, None when it has none (or is refused)."""
        search = self.original.search.model_copy(update={"target_gap": QUICK_GAP, "proof": False, "alternatives": 0})
        try:
            session = open_session(normalise(self.original.model_copy(update={**changes, "search": search})), self.should_stop)
            state = session.run(self.should_stop, lambda progress: None)
            if state.best is None:
                return None
            plan = session.certified_plan(state.best)
        except (SolverError, Stopped):
            return None
        self.problems[plan.id] = session.problem
        return plan

    def _relaxation(self, changes: list[Change], text: str, plan: Plan) -> Relaxation:
        self.plans[plan.id] = plan
        prediction = plan.prediction
        return Relaxation(
            changes=tuple(changes), text=text, plan_id=plan.id, step_time_s=prediction.step_time_s, verdict=prediction.verdict
        )


def _binding(session: Session, state: SearchState) -> tuple[str, str]:
    if not session.space.leaves:
        return "no_legal_layout", "No combination of degrees is legal in the framework under these constraints."
    problem = session.problem
    if (state.tally.evaluated or state.tally.bound) and problem.constraints.max_step_time_s is not None:
        return "max_step_time_s", f"No plan that fits is as fast as {problem.constraints.max_step_time_s:g} s a step."
    model = problem.transformer
    per_parameter = sum(state_bytes(problem))
    states = parameter_count(model) * per_parameter
    offered = sum(group.nodes * group.devices_per_node * group.device.memory_bytes for group in problem.cluster.groups)
    host = sum(group.nodes * group.host.memory_bytes for group in problem.cluster.groups)
    reserve = problem.cluster.memory_reserve_fraction
    if states <= offered * (1.0 - reserve):
        text = (
            f"Model states need {states:.3g} of the {offered:.3g} bytes of the devices, but with activations, logits, "
            f"buffers and the reserve of {reserve:.0%} no layout leaves every rank below its limit."
        )
        return "activations", text
    text = (
        f"Model states alone need {states:.3g} bytes ({per_parameter:g} a parameter) before activations; "
        f"the devices offer {offered:.3g}, their hosts {host:.3g}."
    )
    if session.grid.offload_percent == (0,):
        text += " Nothing may be offloaded under these constraints."
    return "device_memory", text


def _value_used(plan: Plan, word: str) -> Any:
    stage = plan.layout.stages[0]
    if word == "offload_optimizer":
        return stage.strategy.offload.optimizer
    if word == "recompute":
        return stage.strategy.recompute.kind
    if word == "zero":
        return stage.strategy.shard.zero
    if word == "schedule":
        return plan.layout.schedule.kind
    if word in ("mbs", "vpp", "pp"):
        return {"mbs": plan.layout.mbs, "vpp": plan.layout.vpp, "pp": plan.layout.pp}[word]
    return stage.parts[0].size(word)


def _host_words(plan: Plan) -> str:
    host = max((entry.host or 0.0 for entry in plan.prediction.memory_bytes), default=0.0)
    return f", {host:.3g} bytes of each node's memory" if host else ""
