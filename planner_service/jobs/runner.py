"""Runs the queued searches: each slot is a thread that claims a search, runs it in a child process and stores its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.exc import SQLAlchemyError

from planner_service.jobs.best import Best, known_before
from planner_service.jobs.child_messages import search_answer, start_document
from planner_service.jobs.owner import dead_owners, new_owner
from planner_service.jobs.process import ChildEnded, ChildLimits, ChildProcess
from planner_service.problems import Problem
from planner_service.settings import Settings
from planner_service.states import Event
from planner_service.store.leases import Beat, LeaseStore
from planner_service.store.records import Claim

LOG = logging.getLogger("planner.jobs")
IDLE_POLL_S = 0.5
CHILD_POLL_S = 0.05
CANCEL_POLL_S = 0.25
"""how often a running search is looked up for a cancellation that another process took"""


@dataclass(slots=True)
class _Run:
    """What is known about the search a slot is running; times are of the monotonic clock."""

    leases: LeaseStore
    claim: Claim
    kill_at_s: float
    best: Best
    held_until_s: float
    next_beat_s: float = 0.0
    next_look_s: float = 0.0
    seen_cancels: int = 0
    cancel_at_s: float | None = None


class Runner:
    """The slots of one server process."""

    def __init__(self, leases_of: Callable[[str], LeaseStore], settings: Settings, solver_name: str) -> None:
        self._owner = new_owner()
        self._leases_of = leases_of
        self._settings = settings
        self._solver_name = solver_name
        self._stopping = threading.Event()
        self._wake = threading.Condition()
        self._wakes = 0
        self._cancels = 0
        self._threads = [
            threading.Thread(target=self._slot, args=(leases_of(f"{self._owner}-{index}"),), name=f"search-{index}")
            for index in range(settings.concurrent_searches)
        ]

    def start(self) -> None:
        """Frees the searches of dead servers on this machine and starts the slots."""
        self.free_searches_of_the_dead()
        for thread in self._threads:
            thread.start()

    def free_searches_of_the_dead(self) -> None:
        """Ends the leases of owners on this machine whose process is gone."""
        leases = self._leases_of(self._owner)
        leases.expire(dead_owners(leases.owners()))

    def stop(self) -> None:
        """Kills the children, puts their searches back into the queue, and ends the slots."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            thread.join()

    def wake(self) -> None:
        """A search was submitted."""
        with self._wake:
            self._wakes += 1
            self._wake.notify_all()

    def look_for_cancels(self) -> None:
        """A search was cancelled: do not wait for the next heartbeat to notice."""
        self._cancels += 1

    def alive(self) -> bool:
        """Whether every slot still works."""
        return all(thread.is_alive() for thread in self._threads)

    def _slot(self, leases: LeaseStore) -> None:
        """Claims and runs until told to stop; an error of the database is logged and tried again."""
        while not self._stopping.is_set():
            seen = self._wakes
            try:
                busy = self._work(leases)
            except Exception:
                LOG.exception("a search slot failed and goes on")
                busy = False
            if not busy:
                with self._wake:
                    if self._wakes == seen and not self._stopping.is_set():
                        self._wake.wait(IDLE_POLL_S)

    def _work(self, leases: LeaseStore) -> bool:
        """Runs one search if there is one."""
        if not leases.waiting():
            return False
        leases.bury(self._forsaken().text())
        claim = leases.claim()
        if claim is None:
            return False
        self._run(leases, claim)
        return True

    def _run(self, leases: LeaseStore, claim: Claim) -> None:
        """One search from claim to end."""
        problem = orjson.loads(claim.document)
        limit_s = self._settings.search_max_time_s
        limits = ChildLimits(self._settings.search_max_memory_bytes, self._settings.search_max_cpu_s)
        kill_at_s = time.monotonic() + limit_s + self._settings.search_kill_grace_s
        held_until_s = time.monotonic() + self._settings.lease_s
        run = _Run(leases, claim, kill_at_s, known_before(claim.progress, claim.checkpoint), held_until_s)
        with ChildProcess(self._solver_name, limits) as child:
            child.send({"kind": "search", "problem": problem, "max_time_s": limit_s, "start": start_document(claim)})
            try:
                self._follow(child, run)
            except ChildEnded as ended:
                self._child_ended(ended, run)

    def _follow(self, child: ChildProcess, run: _Run) -> None:
        """Listens to the child until the search has ended in the store or is not ours any more."""
        while True:
            message = child.receive(CHILD_POLL_S)
            if message is not None and self._is_end(message, run):
                self._store_end(message, run)
                return
            if self._stopping.is_set():
                run.leases.release(run.claim.id, refund=True)
                return
            if not self._tick(child, run):
                return

    def _insist(self, write: Callable[[], object]) -> None:
        """Writes an end, again while the database does not answer: as long as the lease may still be ours."""
        give_up_s = time.monotonic() + self._settings.lease_s
        while True:
            try:
                write()
                return
            except SQLAlchemyError:
                if time.monotonic() >= give_up_s:
                    raise
                LOG.exception("an end could not be stored and is tried again")
                time.sleep(IDLE_POLL_S)

    def _is_end(self, message: dict[str, Any], run: _Run) -> bool:
        """Takes note of progress and of the time limit; anything else is the end."""
        if "progress" in message:
            run.best.learn(message["progress"], message["layout"])
        elif "time_limit_s" in message:
            run.kill_at_s = time.monotonic() + message["time_limit_s"] + self._settings.search_kill_grace_s
        else:
            return True
        return False

    def _tick(self, child: ChildProcess, run: _Run) -> bool:
        """Heartbeat and deadlines; False when the search is over."""
        now_s = time.monotonic()
        if run.cancel_at_s is not None and now_s >= run.cancel_at_s:
            run.leases.cancelled(run.claim.id, None, (), run.best.text)
            return False
        if now_s >= run.kill_at_s:
            problem = Problem(422, "time_limit", "The search did not stop at its time limit and was ended.")
            run.leases.fail(run.claim.id, problem.text(), run.best.text)
            return False
        if not self._is_due(run, now_s):
            return True
        run.seen_cancels = self._cancels
        run.next_beat_s = now_s + self._settings.heartbeat_s
        try:
            beat = self._beat(run)
        except SQLAlchemyError:
            LOG.exception("search %s: a heartbeat failed", run.claim.id)
            return now_s < run.held_until_s
        run.held_until_s = now_s + self._settings.lease_s
        if beat is Beat.CANCEL and run.cancel_at_s is None:
            run.cancel_at_s = now_s + self._settings.cancel_grace_s
            child.send({"kind": "cancel"})
        return beat is not Beat.LOST

    def _is_due(self, run: _Run, now_s: float) -> bool:
        """Whether it is time for a heartbeat: by the clock, or because somebody cancelled a search."""
        if now_s >= run.next_beat_s or run.seen_cancels != self._cancels:
            return True
        if now_s < run.next_look_s or run.cancel_at_s is not None:
            return False
        run.next_look_s = now_s + CANCEL_POLL_S
        try:
            return run.leases.cancel_wanted(run.claim.id)
        except SQLAlchemyError:
            return False

    def _beat(self, run: _Run) -> Beat:
        """Renews the lease; stores what is new together with what it rests on."""
        if run.best.stored:
            return run.leases.beat(run.claim.id, None)
        beat = run.leases.beat(run.claim.id, run.best.text, run.best.checkpoint, run.best.improved)
        run.best.mark_stored()
        return beat

    def _store_end(self, message: dict[str, Any], run: _Run) -> None:
        """Stores what the child said last."""
        search_id = run.claim.id
        if "problem" in message:
            error = orjson.dumps(message["problem"]).decode()
            self._insist(lambda: run.leases.fail(search_id, error, run.best.text))
            return
        answer = search_answer(message["answer"])
        if run.cancel_at_s is not None and not answer.proven:
            self._insist(lambda: run.leases.cancelled(search_id, answer.result, answer.plans, run.best.text))
        else:
            self._insist(lambda: run.leases.finish(search_id, answer.result, answer.proven, answer.plans, run.best.text))

    def _child_ended(self, ended: ChildEnded, run: _Run) -> None:
        """The child died without an answer: tried again while attempts are left, unless the reason would not go away."""
        search_id = run.claim.id
        LOG.warning("search %s: %s (attempt %d)", search_id, ended, run.claim.attempts)
        if run.cancel_at_s is not None:
            run.leases.cancelled(search_id, None, (), run.best.text)
        elif ended.hit_cpu_limit:
            problem = Problem(
                422, "cpu_limit", f"The search used more than {self._settings.search_max_cpu_s} s of processor time."
            )
            run.leases.fail(search_id, problem.text(), run.best.text)
        elif run.claim.attempts >= self._settings.search_max_attempts:
            run.leases.fail(search_id, self._poisoned().text(), run.best.text, Event.POISON, ended.ending)
        else:
            run.leases.release(search_id, refund=False, ending=ended.ending)

    def _poisoned(self) -> Problem:
        """The error of a search that took its process with it every time."""
        return Problem(500, "poisoned", f"The search ended its process in each of {self._settings.search_max_attempts} attempts.")

    def _forsaken(self) -> Problem:
        """The error of a search that was lost with its server or worker too often."""
        times = self._settings.search_max_takeovers + 1
        return Problem(500, "poisoned", f"The server or worker that ran the search was lost with it {times} times.")
