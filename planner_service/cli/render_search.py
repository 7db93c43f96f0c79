"""A finished search on the terminal: verdict, plan, why it won, its proof; or what binds and what would help."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner_service.cli.exits import show_problem
from planner_service.cli.figures import percent, seconds
from planner_service.cli.render_plan import render_plan, speed_line
from planner_service.problems import problem_from

Document = dict[str, Any]
STATUS_STYLES = {"optimal": "bold green", "feasible": "bold yellow", "infeasible": "bold red", "unknown": "bold red"}
STOPPED_BY = {
    "proof": "the proof is complete",
    "target_gap": "the target gap was reached",
    "work": "the work limit was reached",
    "time": "the time limit was reached",
    "cancelled": "cancelled",
}


def render_search(out: Console, errors: Console, document: Document) -> None:
    """Everything about a search that has ended."""
    result = document["result"]
    if result is None:
        if document["error"] is not None:
            show_problem(errors, problem_from(document["error"]))
        else:
            errors.print(f"The search was {document['state']} before it had a plan.")
        return
    render_header(out, result)
    if result.get("plan"):
        render_plan(out, result["plan"])
    if result.get("infeasible"):
        render_infeasible(out, result["infeasible"])
    render_why(out, result)
    render_certificate(out, result)
    if result.get("plan"):
        out.print(f"\nplan {result['plan']['id']}", highlight=False)


def render_header(out: Console, result: Document) -> None:
    """Status, speed and gap in two lines."""
    status = result["status"]
    certificate = result["certificate"]
    gap = f" · gap {percent(certificate['gap'], 2)}" if certificate.get("gap") is not None else ""
    bound = (
        f" · no plan of this space is below {seconds(certificate['lower_bound_s'])}" if certificate.get("lower_bound_s") else ""
    )
    out.print(f"[{STATUS_STYLES[status]}]{status.upper()}[/]{gap}{bound}", highlight=False)
    if result.get("plan"):
        out.print(speed_line(result["plan"]["prediction"]), highlight=False)


def render_infeasible(out: Console, infeasible: Document) -> None:
    """What binds, and the smallest changes that help, each checked."""
    out.print(f"\n[bold]Nothing fits:[/] {escape(infeasible['text'])} (binding: {escape(infeasible['binding'])})")
    if not infeasible.get("relaxations"):
        return
    out.print("\n[bold]What would fit[/]  each one checked")
    for relaxation in infeasible["relaxations"]:
        speed = f"{seconds(relaxation['step_time_s'])} a step, {relaxation['verdict']}"
        out.print(f"  • {escape(relaxation['text'])} [bold]{speed}[/]", highlight=False)
        for change in relaxation["changes"]:
            out.print(f"      {escape(change['pointer'])} = {escape(str(change['value']))}", highlight=False)


def render_why(out: Console, result: Document) -> None:
    """The explanation, and the alternatives with the reason each one lost."""
    if result.get("explanation"):
        out.print("\n[bold]Why this plan[/]")
        for item in result["explanation"]:
            out.print(f"  • {escape(item['text'])}", highlight=False)
    if not result.get("alternatives"):
        return
    table = Table(
        title="[bold]Alternatives[/]", title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column, options in (
        ("step", {"justify": "right"}),
        ("", {"justify": "right"}),
        ("memory", {}),
        ("plan", {}),
        ("why not", {}),
    ):
        table.add_column(column, overflow="fold", **options)  # type: ignore[arg-type]
    for item in result["alternatives"]:
        slower = f"{100 * item['slower_by_fraction']:+.1f} %" + (" tied" if item["tied"] else "")
        words = [seconds(item["step_time_s"]), slower, item["verdict"], escape(item["summary"]), escape(item["why"])]
        table.add_row(*words)
    out.print()
    out.print(table)


def render_certificate(out: Console, result: Document) -> None:
    """How the space was closed, cell by cell, and what the space is."""
    certificate = result["certificate"]
    cells, space = certificate["cells"], certificate["space"]
    out.print("\n[bold]Certificate[/]")
    closed = ", ".join(f"{cells[how]:,} {how}" for how in ("bound", "infeasible", "evaluated", "open"))
    out.print(f"  cells      {cells['total']:,} = {closed}", highlight=False)
    framework = f"{space['framework']['name']} {space['framework']['version']}"
    out.print(f"  space      {space['count']:,} layouts, framework {escape(framework)}", highlight=False)
    fixed = [f"{name} {options_text(options)}" for name, options in space["dimensions"].items() if len(options) == 1]
    for name, options in space["dimensions"].items():
        if len(options) > 1:
            out.print(f"             {escape(name)}: {escape(options_text(options))}", highlight=False)
    if fixed:
        out.print(f"             only: {escape(', '.join(fixed))}", highlight=False)
    bound = seconds(certificate.get("lower_bound_s"))
    out.print(f"  bound      {bound}, gap {percent(certificate.get('gap'), 3)}", highlight=False)
    if certificate.get("sampling_interval_s"):
        low, high = certificate["sampling_interval_s"]
        out.print(f"  sampling   other batches of these lengths: {seconds(low)} … {seconds(high)}", highlight=False)
    again = "the same again" if result["reproducible"] else "not reproducible"
    out.print(f"  stopped    {STOPPED_BY.get(result['stopped_by'], result['stopped_by'])}; {again}", highlight=False)


def options_text(options: list[Any]) -> str:
    """The options of a dimension, the middle ones left out when there are many."""
    words = ["+".join(map(str, option)) if isinstance(option, list) else str(option) for option in options]
    shown = words if len(words) <= 12 else [*words[:9], "…", *words[-2:]]
    return ("; " if any("," in word for word in words) else ", ").join(shown)
