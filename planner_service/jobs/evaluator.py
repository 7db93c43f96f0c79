"""Short calls to the solver (evaluations, exports) in one child process that is kept, and replaced when it hangs or dies."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from planner_service.jobs.process import ChildEnded, ChildLimits, ChildProcess
from planner_service.problems import Problem, problem_from
from planner_service.settings import Settings

START_TIMEOUT_S = 120.0


class Evaluator:
    """Serves one call after another; as many may wait as the settings allow."""

    def __init__(self, settings: Settings, solver_name: str, timeout_s: float | None = None, first_job: str = "warm") -> None:
        self._settings = settings
        self._first_job = {"kind": first_job}
        self._timeout_s = settings.evaluation_max_time_s if timeout_s is None else timeout_s
        self._solver_name = solver_name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaluator")
        self._child: ChildProcess | None = None
        self._waiting = threading.BoundedSemaphore(settings.max_waiting_evaluations)

    def submit(self, message: dict[str, Any]) -> Future[dict[str, Any]]:
        """The child's answer in the future; raises 429 when too many wait.

        The future raises the child's `Problem`, or 422 when the call takes too long.
        """
        if not self._waiting.acquire(blocking=False):
            raise Problem(429, "queue_full", "Too many evaluations are waiting.", headers={"Retry-After": "1"})
        future = self._thread.submit(self._serve, message)
        future.add_done_callback(lambda _: self._waiting.release())
        return future

    def stop(self) -> None:
        """Ends the child and its thread."""
        self._thread.submit(self._discard).result()
        self._thread.shutdown()

    def _serve(self, message: dict[str, Any]) -> dict[str, Any]:
        """Runs in the one thread that lives as long as the child; a child that died is replaced once."""
        answer = self._ask(message) or self._ask(message)
        if answer is None:
            raise Problem(422, "too_large", "The evaluation ended its process twice; it needs more than the service allows.")
        if "problem" in answer:
            raise problem_from(answer["problem"])
        found = answer["answer"]
        assert isinstance(found, dict)
        return found

    def _ask(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The child's message, or None when it died."""
        try:
            child = self._child or self._start()
            child.send(message)
            answer = child.receive(self._timeout_s)
        except ChildEnded:
            self._discard()
            return None
        if answer is None:
            self._discard()
            raise Problem(422, "too_large", f"The evaluation took more than {self._timeout_s:g} s.")
        return answer

    def _start(self) -> ChildProcess:
        """A child that is ready: its start is not part of the time of the call that needed it."""
        limits = ChildLimits(memory_bytes=self._settings.search_max_memory_bytes)
        self._child = ChildProcess(self._solver_name, limits)
        self._child.send(self._first_job)
        self._child.receive(START_TIMEOUT_S)
        return self._child

    def _discard(self) -> None:
        """Kills the child; the next call starts another."""
        if self._child is not None:
            self._child.kill()
            self._child = None
