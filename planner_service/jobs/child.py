"""The child process: `python -m planner_service.jobs.child SOLVER PARENT_PID MEMORY_BYTES CPU_S`.

It runs one search, or evaluations one after another; it has no database handle. It dies with its parent: the kernel is
asked to kill it (Linux), and a thread that sees the end of its input ends the process elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, BinaryIO

from planner_service.jobs.child_messages import decode, encode, evaluation_document, search_document, start_of
from planner_service.problems import Problem
from planner_service.reading import GivenProfiles, checked_problem, evaluation_parts, read_job
from planner_service.solver_port import Document, Incumbent, LengthWish, SolverPort, load_solver
from planner_service.store.records import StoredPlan

PROGRESS_INTERVAL_S = 0.2
PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Asks Linux to kill this process when the thread that started it ends; ends at once if that has happened."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def limit_resources(memory_bytes: int, cpu_s: int) -> None:
    """Address space and processor time of this process; 0 means no limit."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        if cpu_s:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Inbox:
    """Reads the parent's lines in a thread: jobs are queued, a cancel sets a flag, the end ends the process."""

    def __init__(self, source: BinaryIO) -> None:
        self.jobs: queue.Queue[dict[str, Any]] = queue.Queue()
        self.cancelled = threading.Event()
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: BinaryIO) -> None:
        for line in source:
            message = decode(line)
            if message["kind"] == "cancel":
                self.cancelled.set()
            else:
                self.jobs.put(message)
        os._exit(0)


class Outbox:
    """Writes lines to the parent; progress at most five times a second."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """One message, at once."""
        with self._lock:
            self._target.write(encode(message))
            self._target.flush()


class ProgressReports:
    """What a search tells: the newest progress five times a second, and the last one; a new incumbent with its layout."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._sent_s = -PROGRESS_INTERVAL_S
        self._waiting: dict[str, Any] | None = None
        self._layout: Incumbent | None = None

    def incumbent(self, _value: float, layout: Incumbent) -> None:
        """The next progress tells of a better layout."""
        self._layout = layout

    def progress(self, document: dict[str, Any]) -> None:
        """The newest progress; it waits if one was sent a moment ago."""
        self._waiting = document
        if time.monotonic() - self._sent_s >= PROGRESS_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Sends what waits."""
        if self._waiting is None:
            return
        layout = None if self._layout is None else self._layout()
        self._outbox.send({"progress": self._waiting, "layout": layout})
        self._waiting = self._layout = None
        self._sent_s = time.monotonic()


def run_search(solver: SolverPort, job: dict[str, Any], inbox: Inbox, outbox: Outbox) -> dict[str, Any]:
    """The answer of one search; it is told to stop when cancelled or when its time (the server's maximum at most) is over.

    The time starts when the solver is ready: on a fresh machine its kernels are compiled first.
    """
    solver.warm()
    asked_s = solver.check(job["problem"]).time_limit_s
    limit_s = job["max_time_s"] if asked_s is None else min(asked_s, job["max_time_s"])
    outbox.send({"time_limit_s": limit_s})
    end_s = time.monotonic() + limit_s

    def should_stop() -> bool:
        return inbox.cancelled.is_set() or time.monotonic() >= end_s

    reports = ProgressReports(outbox)
    answer = solver.search(
        job["problem"],
        should_stop,
        reports.progress,
        inbox.cancelled.is_set,
        start=start_of(job["start"]),
        on_incumbent=reports.incumbent,
    )
    reports.flush()
    return search_document(answer)


def check_problem(solver: SolverPort, job: dict[str, Any]) -> dict[str, Any]:
    """What the solver says of a problem; the document too when a profile was put in."""
    sent = job["problem"]
    problem, checked = checked_problem(solver, sent, GivenProfiles(job["profiles"]))
    return {"document": None if problem is sent else encode(problem).decode().rstrip(), "checked": asdict(checked)}


def import_lengths(solver: SolverPort, job: dict[str, Any]) -> str:
    """The import of one file of lengths."""
    files = [(job["name"], io.BytesIO(base64.b64decode(job["file"])))]
    return solver.import_lengths(files, LengthWish(**job["wish"]))


def run_job(solver: SolverPort, job: dict[str, Any], inbox: Inbox, outbox: Outbox) -> dict[str, Any]:
    """The answer of any job."""
    job = read_job(job)

    def parts() -> tuple[Document, Document]:
        return evaluation_parts(solver, job["document"], GivenProfiles(job["profiles"]))

    calls: dict[str, Callable[[], dict[str, Any]]] = {
        "ready": lambda: {},
        "warm": lambda: solver.warm() or {},
        "check": lambda: check_problem(solver, job),
        "evaluate_unread": lambda: evaluation_document(solver.evaluate(*parts())),
        "import_hf_config": lambda: {"import": solver.import_hf_config(job["config"])},
        "import_lengths": lambda: {"import": import_lengths(solver, job)},
        "admit": lambda: {"skeletons": solver.admit(job["problem"], job["most_skeletons"])},
        "search": lambda: run_search(solver, job, inbox, outbox),
        "evaluate": lambda: evaluation_document(solver.evaluate(job["problem"], job["layout"])),
        "timeline": lambda: {"timeline": solver.timeline(StoredPlan(**job["plan"]), job["scenario"])},
        "calibrate": lambda: {"profile": solver.calibrate(job["request"])},
        "export": lambda: {"export": solver.export(StoredPlan(**job["plan"]), job["framework"])},
    }
    return calls[job["kind"]]()


def answer_job(solver: SolverPort, job: dict[str, Any], inbox: Inbox, outbox: Outbox) -> None:
    """Runs a job and sends its answer or its problem."""
    try:
        outbox.send({"answer": run_job(solver, job, inbox, outbox)})
    except Problem as problem:
        outbox.send({"problem": problem.document()})
    except MemoryError:
        outbox.send({"problem": Problem(422, "memory_limit", "The work ran out of the memory it may use.").document()})
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        outbox.send({"problem": Problem(500, "internal_error", f"The solver failed: {type(error).__name__}.").document()})


def main(arguments: list[str]) -> None:
    """Sets limits, then serves jobs until the parent closes the pipe."""
    solver_name, parent_pid, memory_bytes, cpu_s = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(parent_pid))
    limit_resources(int(memory_bytes), int(cpu_s))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    inbox, outbox = Inbox(sys.stdin.buffer), Outbox(answers)
    solver = load_solver(solver_name)
    while True:
        answer_job(solver, inbox.jobs.get(), inbox, outbox)


if __name__ == "__main__":
    main(sys.argv[1:])
