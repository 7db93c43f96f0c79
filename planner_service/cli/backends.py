"""Where a command does its work: in this process, or at a server. Both return the bytes that HTTP returns."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import orjson

from planner_service.cli.exits import UnreadableInput
from planner_service.client import PlannerClient
from planner_service.documents import search_document
from planner_service.problems import Problem
from planner_service.solver_port import DEFAULT_SOLVER, LengthWish, SearchAnswer, SolverPort, load_solver
from planner_service.states import State
from planner_service.store.clock import now_us
from planner_service.store.identifiers import new_search_id
from planner_service.store.records import SearchRecord, StoredPlan

OnUpdate = Callable[[dict[str, Any], str], None]


class Backend(Protocol):
    """What the commands need."""

    remote: bool

    def search(self, problem: dict[str, Any], on_update: OnUpdate) -> tuple[bytes, tuple[StoredPlan, ...]]:
        """The document of the ended search, and the plans it refers to as far as they are at hand."""
        ...

    def evaluate(self, problem: dict[str, Any], layout: dict[str, Any]) -> bytes:
        """The evaluation document."""
        ...

    def import_hf_config(self, config: dict[str, Any]) -> bytes:
        """The import document."""
        ...

    def import_lengths(self, files: list[tuple[str, BinaryIO]], wish: LengthWish) -> bytes:
        """The import document of files of lengths."""
        ...

    def devices(self) -> bytes:
        """The catalogue of devices."""
        ...


class LocalBackend:
    """Calls the solver directly; Ctrl-C once asks the search for what it has."""

    remote = False

    def __init__(self, solver_name: str = DEFAULT_SOLVER) -> None:
        self._solver: SolverPort = load_solver(solver_name)

    def search(self, problem: dict[str, Any], on_update: OnUpdate) -> tuple[bytes, tuple[StoredPlan, ...]]:
        """Searches here and now."""
        created_at_us = now_us()
        checked = self._solver.check(problem)
        end_s = time.monotonic() + (checked.time_limit_s if checked.time_limit_s is not None else float("inf"))
        progress: dict[str, Any] = {"done": 0, "total": None, "incumbent": None, "bound": None, "gap": None}

        def on_progress(newest: dict[str, Any]) -> None:
            progress.update(newest)
            on_update(progress, "running")

        on_update(progress, "running")
        with interruption() as interrupted:
            answer = self._answer(problem, interrupted, end_s, on_progress)
        failure = answer.text() if isinstance(answer, Problem) else None
        found = None if isinstance(answer, Problem) else answer
        stopped = found is not None and not found.proven and interrupted.is_set()
        record = SearchRecord(
            id=new_search_id(created_at_us),
            state=State.FAILED if found is None else State.CANCELLED if stopped else State.DONE,
            problem_digest=checked.problem_digest,
            request_digest=checked.request_digest,
            created_at_us=created_at_us,
            finished_at_us=now_us(),
            progress=orjson.dumps(progress).decode(),
            result=None if found is None else found.result,
            error=failure,
        )
        return search_document(record), () if found is None else found.plans

    def _answer(
        self, problem: dict[str, Any], interrupted: threading.Event, end_s: float, on_progress: Callable[[dict[str, Any]], None]
    ) -> SearchAnswer | Problem:
        """The answer, or the problem a server would store as the error of the search."""

        def should_stop() -> bool:
            return interrupted.is_set() or time.monotonic() >= end_s

        try:
            return self._solver.search(problem, should_stop, on_progress, interrupted.is_set)
        except Problem as refused:
            return refused

    def evaluate(self, problem: dict[str, Any], layout: dict[str, Any]) -> bytes:
        """Evaluates here."""
        return self._solver.evaluate(problem, layout).evaluation.encode()

    def import_hf_config(self, config: dict[str, Any]) -> bytes:
        """Imports here."""
        return self._solver.import_hf_config(config).encode()

    def import_lengths(self, files: list[tuple[str, BinaryIO]], wish: LengthWish) -> bytes:
        """Reads the files here, in pieces."""
        return self._solver.import_lengths(files, wish).encode()

    def devices(self) -> bytes:
        """Those of this installation."""
        return self._solver.devices().encode()

    def export(self, plan: StoredPlan, framework: str) -> bytes:
        """Exports a plan at hand."""
        return self._solver.export(plan, framework).encode()


class RemoteBackend:
    """Calls a server; Ctrl-C leaves the search running there."""

    remote = True

    def __init__(self, client: PlannerClient) -> None:
        self._client = client

    def search(self, problem: dict[str, Any], on_update: OnUpdate) -> tuple[bytes, tuple[StoredPlan, ...]]:
        """Submits and polls."""
        first = self._client.create_search(problem)
        return self._client.follow(first, lambda document: on_update(document["progress"], document["state"])), ()

    def evaluate(self, problem: dict[str, Any], layout: dict[str, Any]) -> bytes:
        """Evaluates at the server."""
        return self._client.evaluate(problem, layout)

    def import_hf_config(self, config: dict[str, Any]) -> bytes:
        """Imports at the server."""
        return self._client.import_hf_config(config)

    def import_lengths(self, files: list[tuple[str, BinaryIO]], wish: LengthWish) -> bytes:
        """Sends one file to the server."""
        if len(files) != 1:
            raise UnreadableInput("a server reads one file of lengths at a time")
        ((name, stream),) = files
        return self._client.import_lengths(name, stream, wish.column, wish.max_tokens, wish.characters_per_token)

    def devices(self) -> bytes:
        """Those of the server."""
        return self._client.devices()


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """Ctrl-C sets the event; a second one interrupts for real."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
