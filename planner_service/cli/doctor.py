"""`planner doctor`: can this machine run the service? Each check says what it found, and what to do when that is not good."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from planner_service.jobs.child_messages import search_answer
from planner_service.jobs.process import ChildEnded, ChildLimits, ChildProcess
from planner_service.settings import LOOPBACK_HOSTS, Settings
from planner_service.solver_port import DEFAULT_SOLVER
from planner_service.store.engine import open_engine
from planner_service.store.migrate import current_revision, head_revision

CHILD_TIMEOUT_S = 180.0
GONE_S = 2.0
TINY_PROBLEM = {
    "model": {"preset": "llama-3.1-8b"},
    "workload": {"sequence_lengths": {"constant": 2048}, "global_batch": {"sequences": 8}},
    "cluster": {"groups": [{"name": "a", "device": "H100-SXM5-80", "nodes": 1}]},
    "framework": "any",
    "constraints": {"fixed": {"tp": 8}},
}


class Trouble(Exception):
    """What is wrong and what to do."""


def check_processors(settings: Settings) -> str:
    """More searches at once than processors only slow each other down."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if settings.concurrent_searches > processors:
        raise Trouble(f"{settings.concurrent_searches} searches at once on {processors} processors: PLANNER_CONCURRENT_SEARCHES")
    return f"{processors}, {settings.concurrent_searches} searches at once, Python {sys.version.split()[0]}"


def check_database(settings: Settings) -> str:
    """It answers, has the newest schema or none yet, and is not on a disk that is full."""
    url = make_url(settings.database_url)
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite":
        directory = Path(url.database or ".").resolve().parent
        if not directory.is_dir() or not os.access(directory, os.W_OK):
            raise Trouble(f"{shown}: the directory {directory} cannot be written")
    engine = open_engine(settings.database_url)
    try:
        revision = current_revision(engine)
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        raise Trouble(f"{shown} does not answer: {str(error).splitlines()[0]}") from error
    finally:
        engine.dispose()
    if revision not in (None, head_revision()):
        return f"{shown} at revision {revision}; the server will bring it to {head_revision()} at start"
    return f"{shown} at revision {revision}" if revision else f"{shown} is empty; the server will fill it at start"


def check_listening(settings: Settings) -> str:
    """Without keys only loopback is served."""
    if settings.host not in LOOPBACK_HOSTS and not settings.allow_remote:
        raise Trouble(f"host {settings.host} is no loopback address; set PLANNER_ALLOW_REMOTE=true if something guards it")
    return f"{settings.host} port {settings.port}"


def check_limits(settings: Settings) -> str:
    """Limits of child processes exist here."""
    try:
        import resource
    except ImportError as error:
        raise Trouble("this system cannot limit the memory of a process") from error
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY and hard < settings.search_max_memory_bytes:
        raise Trouble(f"a process may have {hard} bytes here, PLANNER_SEARCH_MAX_MEMORY_BYTES is more")
    return f"memory {settings.search_max_memory_bytes / 2**30:.1f} GiB, {settings.search_max_cpu_s} s of processor time a search"


def check_search(settings: Settings) -> str:
    """A child process finds and certifies a plan within the limits, and is gone when it is killed."""
    limits = ChildLimits(settings.search_max_memory_bytes, settings.search_max_cpu_s)
    began_s = time.monotonic()
    with ChildProcess(DEFAULT_SOLVER, limits) as child:
        start = {"layouts": [], "near": [], "bound": None}
        child.send({"kind": "search", "problem": TINY_PROBLEM, "max_time_s": CHILD_TIMEOUT_S, "start": start})
        message = _last(child, began_s + CHILD_TIMEOUT_S)
        pid = child.pid
    if "answer" not in message:
        raise Trouble(f"the search failed: {message['problem']['detail']}")
    proven = search_answer(message["answer"]).proven
    taken_s = time.monotonic() - began_s
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() - began_s > taken_s + GONE_S:
            raise Trouble("a killed child process is still there")
        time.sleep(0.02)
    return f"a plan {'proven' if proven else 'found'} in {taken_s:.1f} s (the first time kernels are compiled)"


def _last(child: ChildProcess, until_s: float) -> dict[str, dict[str, str]]:
    """The answer or problem of a child."""
    try:
        while time.monotonic() < until_s:
            message = child.receive(1.0)
            if message is not None and ("answer" in message or "problem" in message):
                return message
    except ChildEnded as ended:
        raise Trouble(f"the search did not end: {ended.ending}") from ended
    raise Trouble(f"the search did not end within {CHILD_TIMEOUT_S:g} s")


CHECKS: dict[str, Callable[[Settings], str]] = {
    "processors": check_processors,
    "database": check_database,
    "address": check_listening,
    "limits": check_limits,
    "search": check_search,
}


def examine(settings: Settings) -> list[tuple[str, bool, str]]:
    """Name, whether it is good, and what was found, for every check."""
    found = []
    for name, check in CHECKS.items():
        try:
            found.append((name, True, check(settings)))
        except Trouble as trouble:
            found.append((name, False, str(trouble)))
    return found
