"""Evaluations, exports and imports on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from planner_service.cli.render_plan import render_plan, speed_line

Document = dict[str, Any]
VERDICTS = {"ok": "[bold green]LEGAL, FITS[/]", "illegal": "[bold red]ILLEGAL[/]", "does_not_fit": "[bold red]DOES NOT FIT[/]"}


def render_evaluation(out: Console, document: Document) -> None:
    """The verdict, every violation with the nearest legal values, and the plan."""
    out.print(VERDICTS[document["verdict"]])
    for violation in document["violations"]:
        severity = violation["severity"].replace("_", " ")
        out.print(f"  [bold]{escape(violation['rule'])}[/] ({severity}): {escape(violation['message'])}", highlight=False)
        if violation.get("values"):
            out.print(f"      here: {escape(_pairs(violation['values']))}", highlight=False)
        if violation.get("nearest"):
            out.print(f"      nearest legal: {escape(_pairs(violation['nearest']))}", highlight=False)
    plan = document.get("plan")
    if plan is not None:
        out.print(speed_line(plan["prediction"]), highlight=False)
        render_plan(out, plan)
        out.print(f"\nplan {plan['id']}", highlight=False)


def render_export(out: Console, document: Document) -> None:
    """The files one after another, then the command."""
    out.print(f"[bold]{escape(document['framework'])} {escape(document['version'])}[/]", highlight=False)
    for file in document["files"]:
        out.print(f"\n[bold]{escape(file['path'])}[/]", highlight=False)
        out.print(file["content"], markup=False, highlight=False, soft_wrap=True)
    out.print("\n[bold]command[/]")
    out.print(document["command"], markup=False, highlight=False, soft_wrap=True)


def render_import(out: Console, errors: Console, document: Document) -> None:
    """The spec as JSON on stdout, the warnings on stderr."""
    for warning in document.get("warnings") or ():
        errors.print(f"[yellow]note[/] {escape(str(warning))}")
    spec = {key: value for key, value in document.items() if key not in ("warnings", "kind")}
    out.print_json(data=spec)


def _pairs(values: Document) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
