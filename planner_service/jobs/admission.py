"""Counts the space of a new problem before anything is queued, in a child process that is kept for that."""

from __future__ import annotations

from typing import Any

import orjson

from planner_service.jobs.evaluator import Evaluator
from planner_service.problems import Problem
from planner_service.settings import Settings

TIMEOUT_S = 10.0


class Admission:
    """Refuses what is too large; what it cannot tell in time is let in, the search has the same limit."""

    def __init__(self, settings: Settings, solver_name: str) -> None:
        self._most = settings.search_max_skeletons
        self._counter = Evaluator(settings, solver_name, timeout_s=TIMEOUT_S, first_job="ready")

    def check(self, problem: dict[str, Any] | orjson.Fragment) -> None:
        """Returns when the problem may be queued; raises the solver's refusal, or 429 when too many wait to be counted."""
        try:
            self._counter.submit({"kind": "admit", "problem": problem, "most_skeletons": self._most}).result()
        except Problem as refused:
            undecided = refused.code == "too_large" and not refused.errors
            if not undecided:
                raise

    def stop(self) -> None:
        """Ends the child."""
        self._counter.stop()
