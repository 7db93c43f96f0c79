"""A solver without mathematics for tests of the service: `behaviour` in the problem says what it does."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import orjson

from planner_service.problems import FieldProblem, Problem
from planner_service.solver_adapter import RealSolver
from planner_service.solver_port import NOTHING_KNOWN, Checked, EvaluationAnswer, SearchAnswer
from planner_service.store.records import StoredPlan
from tests.service.sample_documents import plan_document, result_document

FILE = {"path": "conf/run.sh", "media_type": "text/x-sh", "content": "torchrun --tp [4]\n"}
NAME = "tests.service.fake_solver:FakeSolver"
KNOWN = ("model", "workload", "cluster", "search", "behaviour", "framework")


def digest(document: Any) -> str:
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()


def plan(name: str) -> StoredPlan:
    """A plan that says its name."""
    plan_id = digest(name)
    return StoredPlan(plan_id, orjson.dumps(plan_document(plan_id)).decode(), orjson.dumps({"name": name}).decode())


class FakeSolver:
    """See `SolverPort`."""

    def check(self, problem):
        errors = [FieldProblem(f"/{name}", "unknown_field", "unknown", KNOWN) for name in problem if name not in KNOWN]
        errors += [FieldProblem(f"/{name}", "missing", "missing", KNOWN[:3]) for name in KNOWN[:3] if name not in problem]
        if errors:
            raise Problem(422, "invalid_problem", "not valid", errors)
        search = problem.get("search", {})
        without = {key: value for key, value in problem.items() if key != "search"}
        near = digest({key: without[key] for key in ("model", "cluster")})
        limit_s = search.get("time_limit_s", 60.0)
        return Checked(digest(without), digest(problem), limit_s, "any", "x", near, self.versions())

    def admit(self, problem, most_skeletons):
        if problem.get("behaviour", {}).get("admission_crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        found = problem.get("behaviour", {}).get("skeletons", 1)
        if found > most_skeletons:
            raise Problem(422, "too_large", "too many", [FieldProblem("/constraints/allowed", "too_large", "too many")])
        return found

    def versions(self):
        return os.environ.get("FAKE_SOLVER_VERSIONS", '{"solver":"fake"}')

    def warm(self):
        pass

    def search(self, problem, should_stop, on_progress, cancelled, *, start=NOTHING_KNOWN, on_incumbent=None):
        behaviour = problem.get("behaviour", {})
        _count(behaviour)
        if behaviour.get("crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour.get("refuse"):
            raise Problem(422, "invalid_problem", "later", [FieldProblem("/model", "not_supported", "not yet")])
        if behaviour.get("error"):
            raise RuntimeError("secret of the solver")
        if behaviour.get("memory"):
            return _hoard()
        return self._steps(behaviour, should_stop, on_progress, cancelled)

    def _steps(self, behaviour, should_stop, on_progress, cancelled):
        steps = behaviour.get("steps", 1)
        for step in range(steps):
            on_progress({"done": step, "total": steps, "incumbent": 2.0, "bound": 1.0, "gap": 0.5})
            end_s = time.monotonic() + behaviour.get("step_s", 0.0)
            while time.monotonic() < end_s:
                if should_stop() and not behaviour.get("deaf"):
                    return self._answer("feasible", "cancelled" if cancelled() else "time", behaviour)
                time.sleep(0.01)
        return self._answer(behaviour.get("status", "optimal"), "proof", behaviour)

    def _answer(self, status, stopped_by, behaviour):
        best = plan(str(behaviour.get("name", "best")))
        other = plan("alternative")
        result = {**result_document(status, best.id, other.id, stopped_by), "noise": time.time_ns()}
        return SearchAnswer(orjson.dumps(result).decode(), status in ("optimal", "infeasible"), (best, other))

    def evaluate(self, problem, layout):
        self.check(problem)
        if layout.get("crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        if "sleep_s" in layout:
            time.sleep(layout["sleep_s"])
        if layout.get("tp") == 3:
            broken = {
                "rule": "tp_divides_heads",
                "severity": "refused",
                "message": "tp 3",
                "values": {"tp": 3},
                "nearest": {"tp": 4},
            }
            return EvaluationAnswer(orjson.dumps({"verdict": "illegal", "violations": [broken], "plan": None}).decode(), None)
        if "bad" in layout:
            raise Problem(422, "invalid_layout", "bad", [FieldProblem("/layout/bad", "unknown_field", "no")])
        made = plan(f"evaluated-{digest(layout)}")
        verdict = "does_not_fit" if layout.get("tp") == 1 else "ok"
        return EvaluationAnswer('{"verdict":"' + verdict + '","violations":[],"plan":' + made.body + "}", made)

    def export(self, plan, framework):
        if framework != "fake":
            error = FieldProblem("/layout/share", "not_supported", "unequal shares")
            raise Problem(409, "not_expressible", "unequal shares", [error])
        return orjson.dumps({"framework": framework, "version": "1", "files": [FILE], "command": plan.id}).decode()

    def import_lengths(self, files, wish):
        ((_, stream),) = files
        if not stream.read():
            raise Problem(422, "invalid_problem", "no lengths", [FieldProblem("", "missing", "no lengths were found")])
        counts = {"sequence_lengths": {"counts": [[8, 1]]}, "max_sequence_length": 8, "truncate": False}
        rest = {"kind": "lengths", "formats": ["lines"], "statistics": {}, "limit": {}, "max_relative_error": 0.0}
        return orjson.dumps({**rest, **counts, "warnings": []}).decode()

    def import_hf_config(self, config):
        if "model_type" not in config:
            raise Problem(422, "invalid_problem", "no type", [FieldProblem("/model_type", "missing", "missing")])
        return '{"kind":"hf-config","model":{"transformer":{"hidden_size":8}},"warnings":["rope scaling has no influence"]}'

    def devices(self):
        return '{"devices":[]}'

    def models(self):
        return '{"models":[]}'

    def timeline(self, plan, scenario):
        return orjson.dumps({"plan_id": plan.id, "scenario": scenario, "step_time_s": 1.0, "operations": []}).decode()

    def schemas(self):
        return RealSolver().schemas()

    def frameworks(self):
        return '{"frameworks":[]}'


def _count(behaviour):
    """Leaves one line a run in the file named by `count`."""
    if "count" in behaviour:
        with Path(behaviour["count"]).open("a") as file:
            file.write(f"{os.getpid()}\n")


def _hoard():
    kept = []
    while True:
        kept.append(bytearray(2**24))
