"""A plan on the terminal: what it is, who does what, what the memory holds, and where the time goes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner_service.cli.figures import gib, glyphs, legend, percent, seconds, stacked
from planner_service.cli.stage_rows import devices_text, stage_rows

BAR_WIDTH = 40
#: Shares of the step below this are rounding, not time.
LEAST_SHARE = 1e-9
MAX_BARS = 12
Document = dict[str, Any]


def render_plan(out: Console, plan: Document) -> None:
    """All sections of one plan."""
    render_layout(out, plan["layout"])
    render_memory(out, plan["prediction"]["memory_bytes"])
    render_time(out, plan["prediction"])
    render_notes(out, plan)


def speed_line(prediction: Document) -> str:
    """Step time with its interval, throughput, MFU, cost."""
    low, high = prediction["step_time_interval_s"]
    parts = [
        f"step [bold]{seconds(prediction['step_time_s'])}[/] \\[{seconds(low)} … {seconds(high)}]",
        f"{prediction['tokens_per_s']:,.0f} tokens/s ({prediction['tokens_per_s_per_device']:,.0f} a device)",
        f"MFU {percent(prediction['mfu'])}",
    ]
    if prediction.get("cost"):
        parts.append(f"{prediction['cost']['per_1e9_tokens']:,.0f} {escape(prediction['cost']['currency'])} per 10⁹ tokens")
    return " · ".join(parts)


def render_layout(out: Console, layout: Document) -> None:
    """One row a part of a stage; columns that say nothing are left out."""
    schedule = layout["schedule"]["kind"]
    title = (
        f"[bold]Layout[/]  {schedule}, mbs {layout['mbs']}, vpp {layout['vpp']}, {layout['sequence_policy'].replace('_', ' ')}"
    )
    rows = [row.texts() for row in stage_rows(layout)]
    headings = ["stage", "layers", "devices", "mesh", "micro-batches", "recompute", "shards p/g/o", "offload"]
    told = [index for index in range(len(headings)) if any(row[index] not in ("", "–") for row in rows)]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for index in told:
        table.add_column(headings[index], overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[index]) for index in told))
    out.print(f"\n{title}", highlight=False)
    out.print(table)
    if layout.get("idle_devices"):
        idle = ((item["group"], item["first"], item["first"] + item["count"] - 1) for item in layout["idle_devices"])
        out.print(f"idle: {escape(devices_text(idle))}", highlight=False)


def render_memory(out: Console, entries: list[Document]) -> None:
    """A bar a stage and group against the capacity of the device; when there are many, the fullest ones."""
    blocks = glyphs(out)
    names = [*dict.fromkeys(name for entry in entries for name in entry["items"]), "allocator", "context"]
    fullest = sorted(range(len(entries)), key=lambda index: -entries[index]["device"] / entries[index]["limit"])[:MAX_BARS]
    out.print(
        "\n[bold]Memory of the worst rank[/]  GiB; a bar ends at the capacity, the mark inside is the limit", highlight=False
    )
    for index in sorted(fullest):
        out.print(_memory_line(entries[index], names, blocks, out.width), highlight=False, soft_wrap=True)
    if len(entries) > MAX_BARS:
        out.print(f"and {len(entries) - MAX_BARS} less full ones", highlight=False)
    largest = [(name, gib(max(_value(entry, name) for entry in entries))) for name in names]
    out.print("at most: " + legend(largest, blocks, out.width - 9), highlight=False)


def _memory_line(entry: Document, names: list[str], blocks: str, width: int) -> str:
    """One bar with its figures."""
    low, high = entry["device_interval"]
    host = f", host {gib(entry['host'])}" if entry.get("host") else ""
    verdict = {"safe": "[green]safe[/]", "fits": "[yellow]fits[/]", "no": "[red]does not fit[/]"}[entry["verdict"]]
    figures = f"{gib(entry['device'])} \\[{gib(low)} … {gib(high)}] of {gib(entry['capacity'])}"
    text = f"{figures}, limit {gib(entry['limit'])}{host} {verdict}"
    room = min(BAR_WIDTH, max(10, width - 66 - len(host)))
    bar = stacked([(name, _value(entry, name)) for name in names], entry["capacity"], room, blocks, entry["limit"])
    return f"stage {entry['stage']:<3} {escape(entry['group']):<8} |{bar}| {text}"


def _value(entry: Document, name: str) -> float:
    return float(entry["items"].get(name, entry.get(name, 0.0) if name in ("allocator", "context") else 0.0))


def render_time(out: Console, prediction: Document) -> None:
    """One bar for the step of the rank that ends last, then what is hidden behind it."""
    breakdown = prediction["time_breakdown_s"]
    parts = [("compute", breakdown["compute"])]
    parts += [(f"{axis} exposed", item["exposed"]) for axis, item in breakdown["communication"].items() if item["exposed"] > 0]
    parts += [(name, breakdown[name]) for name in ("bubble", "imbalance", "optimizer") if breakdown[name] > 0]
    total_s = sum(value for _, value in parts)
    parts = [(name, value) for name, value in parts if value > LEAST_SHARE * total_s]
    blocks = glyphs(out)
    out.print("\n[bold]Where the time goes[/]  the rank that ends last")
    out.print(
        f"|{stacked(parts, total_s, min(2 * BAR_WIDTH, max(10, out.width - 14)), blocks)}| {seconds(total_s)}", highlight=False
    )
    shares = [(name, f"{seconds(value)} ({percent(value / total_s if total_s else 0.0)})") for name, value in parts]
    out.print(legend(shares, blocks, out.width), highlight=False)
    hidden = [f"{axis} {seconds(item['hidden'])}" for axis, item in breakdown["communication"].items() if item["hidden"] > 0]
    notes = [f"hidden behind compute: {', '.join(hidden)}"] if hidden else []
    notes += [f"padding {percent(prediction['padding_fraction'])} of the tokens"] if prediction.get("padding_fraction") else []
    for note in notes:
        out.print(note, highlight=False)


def render_notes(out: Console, plan: Document) -> None:
    """Where the plan can run, and its warnings."""
    out.print(f"\nexpressible in: {escape(', '.join(plan.get('expressible_in') or ())) or 'no supported framework'}")
    for warning in plan.get("warnings") or ():
        out.print(f"[yellow]note[/] {escape(warning)}")
