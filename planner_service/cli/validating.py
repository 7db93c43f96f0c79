"""`planner validate`: predictions of measured runs, on the terminal or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import solver
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.inputs import read_file

if TYPE_CHECKING:
    from solver import Comparison, Report

Document = dict[str, Any]
GIB = 2.0**30


def validation_report(files: list[Path], settings: list[str], on_progress: Callable[[str, int], None]) -> Report:
    """The report of the files with columns overridden by `column=value`; raises UnreadableInput."""
    texts = []
    for path in files:
        try:
            texts.append((path.name, read_file(path).decode("utf-8-sig")))
        except UnicodeDecodeError as error:
            raise UnreadableInput(f"{path}: not UTF-8 text") from error
    try:
        return solver.validate(texts, _overrides(settings), on_progress=on_progress)
    except solver.InvalidProblem as error:
        details = "; ".join(f"{item.pointer[1:]}: {item.message}" for item in error.errors)
        raise UnreadableInput(details) from error


def _overrides(settings: list[str]) -> dict[str, str]:
    found = {}
    for setting in settings:
        column, equals, value = setting.partition("=")
        if not equals:
            raise UnreadableInput(f"--set takes column=value, not {setting!r}")
        found[column.strip()] = value.strip()
    return found


def render_validation(out: Console, report: Report, *, rows: bool) -> None:
    """Every row of every file (unless hidden), then the summaries."""
    start = 0
    for entry in report.files if rows else ():
        after = start + entry["rows"]["total"]
        out.print(f"\n[bold]{escape(entry['file'])}[/]", highlight=False)
        out.print(_row_table(report.rows[start:after], report.comparisons[start:after]))
        start = after
    for entry in report.files:
        _render_summary(out, entry)


def _row_table(rows: tuple[Document, ...], comparisons: tuple[Comparison, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("row", no_wrap=True)
    for title in ("measured s", "predicted s", "error", "interval s", "read GiB", "predicted", "peak GiB"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for row, beside in zip(rows, comparisons, strict=True):
        measured = _number(beside.measured_step_s)
        read, as_read = _gib(beside.measured_memory_bytes), _gib(beside.predicted_memory_bytes)
        if row["skipped_reason"] is not None:
            reason = f"[dim]{escape('refused: ' + row['skipped_reason'])}[/]"
            table.add_row(escape(row["row_id"]), measured, "", "", "", read, "", "", "", reason)
            continue
        low, high = row["predicted_interval_s"]
        verdict = "safe" if row["safe"] else ("fits" if row["fits"] else "[red]no[/]")
        error = "" if beside.time_error_fraction is None else f"{beside.time_error_fraction:+.1%}"
        table.add_row(
            escape(row["row_id"]),
            measured,
            _number(row["predicted_step_time_s"]),
            error,
            f"{_number(low)} … {_number(high)}",
            read,
            as_read,
            _gib(row["predicted_peak_memory_bytes"]),
            verdict,
            escape("; ".join((("completed",) if row["completed"] else ()) + beside.notes)),
        )
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _gib(value: float | None) -> str:
    return "" if value is None else f"{value / GIB:.1f}"


def _render_summary(out: Console, entry: Document) -> None:
    counts = entry["rows"]
    text = f"{counts['used']} used, {counts['completed']} completed, {counts['refused']} refused"
    out.print(f"\n[bold]{escape(entry['file'])}[/]  {text}", highlight=False)
    for reason, count in entry["refused_reasons"].items():
        out.print(f"  {count} refused: {escape(reason)}", highlight=False, soft_wrap=True)
    for title, key in (("step time", "step_time"), ("step time, completed rows", "step_time_completed")):
        if entry[key]:
            out.print(f"  {title}: {_errors(entry[key])}", highlight=False, soft_wrap=True)
    for memory in entry["memory"]:
        kind = f"{escape(memory['mem_kind'])}, as {memory['compared']}"
        out.print(f"  memory ({kind}): {_errors(memory)}", highlight=False, soft_wrap=True)
    if entry["ranking"]:
        _render_ranking(out, entry["ranking"])
    verdict = entry["verdict"]
    if verdict:
        shares = ", ".join(f"{name} {_share(verdict[name])}" for name in ("precision", "recall", "f1"))
        alarms = f"{verdict['out_of_memory_called']} of {verdict['out_of_memory_rows']} out-of-memory runs called"
        out.print(f"  fit verdict: {shares}; {alarms}, {verdict['false_alarms']} false alarms", highlight=False, soft_wrap=True)


def _render_ranking(out: Console, ranking: Document) -> None:
    for group in ranking["groups"]:
        tau = "-" if group["tau_b"] is None else f"{group['tau_b']:.2f}"
        text = f"  order of {group['layouts']} layouts: tau {tau}, regret {group['regret_fraction']:.1%}"
        out.print(f"{text}  [dim]{escape(group['name'])}[/]", highlight=False, soft_wrap=True)


def _errors(entry: Document) -> str:
    sizes = ", ".join(f"{name} {entry[name]:.1%}" for name in ("median", "mean", "p90", "max"))
    inside = entry.get("inside_interval")
    tail = "" if inside is None else f", {inside:.0%} inside the interval"
    return f"{entry['rows']} rows, error {sizes}, signed median {entry['signed_median']:+.1%}{tail}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
