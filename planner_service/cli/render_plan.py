"""A plan on the terminal: what it is, who does what, what the memory holds, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner_service.cli.figures import count_in, gib, glyphs, legend, mesh_sizes, percent, ranges, seconds, stacked

BAR_WIDTH = 40
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
    """One row a part of a stage."""
    schedule = layout["schedule"]["kind"]
    title = (
        f"[bold]Layout[/]  {schedule}, mbs {layout['mbs']}, vpp {layout['vpp']}, {layout['sequence_policy'].replace('_', ' ')}"
    )
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("stage", "layers", "devices", "mesh", "share × micro-batches", "recompute", "shards p/g/o", "offload"):
        table.add_column(column, overflow="fold")
    for module in layout["modules"]:
        for index, stage in enumerate(module["stages"]):
            for row in _stage_rows(module, index, stage):
                table.add_row(*row)
    out.print()
    out.print(table)
    if layout.get("idle_devices"):
        out.print(f"idle: {escape(devices_text(layout['idle_devices']))}")


def _stage_rows(module: Document, index: int, stage: Document) -> Iterator[list[str]]:
    """The rows of a stage: what all its parts share stands in the first."""
    strategy = stage["strategy"]
    name = f"{index}" if module["module"] == "model" else f"{module['module']} {index}"
    holds = "".join(f" + {what}" for what in stage.get("holds", ()))
    layers = f"{ranges(stage['chunks'])} ({count_in(stage['chunks'])}){holds}"
    shared = [recompute_text(stage), shards_text(strategy.get("shard")), offload_text(strategy.get("offload"))]
    for number, part in enumerate(stage["parts"]):
        own = [escape(devices_text(part["devices"])), mesh_text(part), f"{percent(part['share'])} × {part['micro_batches']}"]
        yield [escape(name), escape(layers), *own, *shared] if number == 0 else ["", "", *own, "", "", ""]


def devices_text(devices: list[Document]) -> str:
    """`h100 0–15, a100 0–15`."""
    return ", ".join(f"{item['group']} {ranges([(item['first'], item['first'] + item['count'] - 1)])}" for item in devices)


def mesh_text(part: Document) -> str:
    """Degrees above one, `1 device` when there are none."""
    sizes = {axis: size for axis, size in mesh_sizes(part["mesh"]).items() if size > 1}
    expert = {axis: size for axis, size in mesh_sizes(part.get("expert_mesh") or ()).items() if size > 1}
    text = " ".join(f"{axis} {size}" for axis, size in sizes.items()) or "1 device"
    return f"{text}; {' '.join(f'{axis} {size}' for axis, size in expert.items())}" if expert else text


def recompute_text(stage: Document) -> str:
    """The stage's recompute and what some layers do instead."""
    text = _recompute_word(stage["strategy"]["recompute"])
    others = [
        f"layers {ranges([override['layers']])} {_recompute_word(override['recompute'])}"
        for override in stage.get("overrides") or ()
        if override.get("recompute")
    ]
    return "; ".join([text, *others])


def _recompute_word(recompute: Document) -> str:
    modules = recompute.get("modules") or ()
    return recompute["kind"] + (f" ({', '.join(modules)})" if modules else "")


def shards_text(shard: Document | None) -> str:
    """Over how many ranks parameters, gradients and optimizer states are sharded."""
    if not shard:
        return "–"
    return " / ".join(str(shard[kind]["shard"]) for kind in ("parameters", "gradients", "optimizer"))


def offload_text(offload: Document | None) -> str:
    """What is kept in host memory."""
    kept = [f"{name} {percent(value, 0)}" for name, value in (offload or {}).items() if value]
    return ", ".join(kept) or "–"


def render_memory(out: Console, entries: list[Document]) -> None:
    """A bar a stage and group against the capacity of the device; `|` inside is the limit."""
    blocks = glyphs(out)
    names = list(dict.fromkeys(name for entry in entries for name in entry["items"]))
    shown = [*names, "allocator", "context"]
    out.print(
        "\n[bold]Memory of the worst rank[/]  GiB, the bar ends at the capacity of the device, the mark inside is the limit"
    )
    for entry in entries:
        values = {**entry["items"], "allocator": entry["allocator"], "context": entry["context"]}
        bar = stacked([(name, values.get(name, 0.0)) for name in shown], entry["capacity"], BAR_WIDTH, blocks, entry["limit"])
        verdict = {"safe": "[green]safe[/]", "fits": "[yellow]fits[/]", "no": "[red]does not fit[/]"}[entry["verdict"]]
        low, high = entry["device_interval"]
        text = f"{gib(entry['device']):>6} \\[{gib(low)} … {gib(high)}] of {gib(entry['capacity'])}, limit {gib(entry['limit'])}"
        host = f", host {gib(entry['host'])}" if entry.get("host") else ""
        out.print(f"stage {entry['stage']:<3} {escape(entry['group']):<8} |{bar}| {text}{host}  {verdict}", highlight=False)
    largest = {name: max(_value(entry, name) for entry in entries) for name in shown}
    out.print(
        "at most: " + legend([(name, gib(value)) for name, value in largest.items()], blocks, out.width - 9), highlight=False
    )


def _value(entry: Document, name: str) -> float:
    return float(entry["items"].get(name, entry.get(name, 0.0) if name in ("allocator", "context") else 0.0))


def render_time(out: Console, prediction: Document) -> None:
    """One bar for the step of the rank that ends last, then what is hidden behind it."""
    breakdown = prediction["time_breakdown_s"]
    parts = [("compute", breakdown["compute"])]
    parts += [(f"{axis} exposed", item["exposed"]) for axis, item in breakdown["communication"].items() if item["exposed"] > 0]
    parts += [(name, breakdown[name]) for name in ("bubble", "imbalance", "optimizer") if breakdown[name] > 0]
    total_s = sum(value for _, value in parts)
    blocks = glyphs(out)
    out.print("\n[bold]Where the time goes[/]  the rank that ends last")
    out.print(f"|{stacked(parts, total_s, 2 * BAR_WIDTH, blocks)}| {seconds(total_s)}", highlight=False)
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
