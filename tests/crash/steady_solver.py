"""A solver that works like a search: its incumbent falls, its bound rises, and it begins with what it is given."""

from __future__ import annotations

import time

import orjson

from planner_service.solver_port import NOTHING_KNOWN, SearchAnswer
from tests.service.fake_solver import FakeSolver, plan
from tests.service.sample_documents import result_document

NAME = "tests.crash.steady_solver:SteadySolver"
OPTIMUM = 10.0


class SteadySolver(FakeSolver):
    """`behaviour`: name, steps, step_s, deaf. Step k finds OPTIMUM x (1 + steps left) and proves OPTIMUM x share done."""

    def search(self, problem, should_stop, on_progress, cancelled, *, start=NOTHING_KNOWN, on_incumbent=None):
        behaviour = problem["behaviour"]
        steps = behaviour["steps"]
        best = min((layout["value"] for layout in start.layouts), default=None)
        bound = start.bound
        for step in range(steps + 1):
            found = OPTIMUM * (1 + steps - step)
            if best is None or found < best:
                best = found
                on_incumbent(found, lambda value=found: {"value": value})
            proven = OPTIMUM * step / steps
            bound = proven if bound is None else max(bound, proven)
            on_progress({"done": step, "total": steps, "incumbent": best, "bound": bound, "gap": (best - bound) / best})
            end_s = time.monotonic() + behaviour["step_s"]
            while step < steps and time.monotonic() < end_s:
                if should_stop() and not behaviour.get("deaf"):
                    return self._found(behaviour, best, "cancelled" if cancelled() else "time")
                time.sleep(0.005)
        return self._found(behaviour, best, "proof")

    def _found(self, behaviour, best, stopped_by):
        plans = plan(behaviour["name"]), plan("alternative")
        status = "optimal" if stopped_by == "proof" else "feasible"
        result = {**result_document(status, plans[0].id, plans[1].id, stopped_by), "value": best, "noise": time.time_ns()}
        return SearchAnswer(orjson.dumps(result).decode(), status == "optimal", plans)
