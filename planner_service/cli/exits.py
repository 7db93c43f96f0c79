"""Exit codes of every command, and how refusals are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from planner_service.client import ServiceUnreachable
from planner_service.problems import Problem

MAX_ALLOWED_SHOWN = 12


class Exit(IntEnum):
    """DESIGN 3.4; of several findings the lowest of 2-4 wins."""

    OK = 0
    INTERNAL = 1
    ILLEGAL = 2
    DOES_NOT_FIT = 3
    SLOWER = 4
    SERVICE = 5
    UNKNOWN = 6
    USAGE = 64


class UnreadableInput(Exception):
    """A file that cannot be read or is not what it should be."""


STATUS_EXITS = {"optimal": Exit.OK, "feasible": Exit.OK, "infeasible": Exit.DOES_NOT_FIT, "unknown": Exit.UNKNOWN}
VERDICT_EXITS = {"ok": Exit.OK, "illegal": Exit.ILLEGAL, "does_not_fit": Exit.DOES_NOT_FIT}


def search_exit(document: dict[str, Any], remote: bool) -> Exit:
    """The exit code of a search document."""
    if document["result"] is not None:
        return STATUS_EXITS[document["result"]["status"]]
    if document["error"] is not None:
        return problem_exit(int(document["error"].get("status", 500)), str(document["error"].get("code")), remote)
    return Exit.UNKNOWN


def problem_exit(status: int, code: str, remote: bool) -> Exit:
    """The exit code of a refusal."""
    if code in ("not_expressible", "illegal_layout"):
        return Exit.ILLEGAL
    if status in (429, 503) or (remote and status >= 500):
        return Exit.SERVICE
    if status >= 500:
        return Exit.INTERNAL
    return Exit.UNKNOWN if code in ("time_limit", "memory_limit", "cpu_limit", "too_large") else Exit.USAGE


@contextmanager
def refusals_shown(errors: Console, remote: bool) -> Iterator[None]:
    """Ends the command with the right code when something refuses."""
    try:
        yield
    except Problem as problem:
        show_problem(errors, problem)
        raise typer.Exit(problem_exit(problem.status, problem.code, remote)) from problem
    except UnreadableInput as error:
        errors.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(Exit.USAGE) from error
    except ServiceUnreachable as error:
        errors.print(f"[bold red]the service failed[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(Exit.SERVICE) from error


def show_problem(errors: Console, problem: Problem) -> None:
    """Title, then one line a field: pointer, message, allowed values."""
    document = problem.document()
    errors.print(f"[bold red]{escape(document['title'])}[/] ({document['code']})", soft_wrap=True)
    if not document["errors"] and document["detail"]:
        errors.print("  " + escape(document["detail"]), soft_wrap=True)
    for error in document["errors"]:
        errors.print(f"  [bold]{escape(error['pointer'] or '/')}[/]: {escape(error['message'])}", soft_wrap=True)
        if error["allowed"]:
            shown = ", ".join(str(item) for item in error["allowed"][:MAX_ALLOWED_SHOWN])
            more = ", …" if len(error["allowed"]) > MAX_ALLOWED_SHOWN else ""
            errors.print(f"      allowed: {escape(shown)}{more}", soft_wrap=True)
