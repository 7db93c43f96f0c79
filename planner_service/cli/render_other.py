"""Evaluations, exports and imports on the terminal."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
    """Parameters by part and the layers on stdout, the warnings on stderr; another kind of file as JSON."""
    for warning in document.get("warnings") or ():
        errors.print(f"[yellow]note[/] {escape(str(warning))}")
    if "parameters" not in document:
        out.print_json(data={key: value for key, value in document.items() if key not in ("warnings", "kind")})
        return
    model = document["model"]
    modules = model.get("modules") or [{"name": "model", "transformer": model["transformer"]}]
    for module in modules:
        _render_layers(out, module["name"], module["transformer"])
    _render_parameters(out, document["parameters"])


def _render_layers(out: Console, name: str, transformer: Document) -> None:
    """One row a kind of layer, in the order of their first layers."""
    tied = ", tied" if transformer.get("tied_embeddings") else ""
    vocabulary = f", vocabulary {transformer['vocab_size']:,}{tied}" if transformer.get("vocab_size") else ""
    table = Table(title=f"{name}: hidden size {transformer['hidden_size']:,}{vocabulary}", title_justify="left")
    for column in ("layers", "attention", "feed-forward"):
        table.add_column(column, justify="right" if column == "layers" else "left")
    kinds: Counter[tuple[str, str]] = Counter()
    for block in transformer["blocks"]:
        kinds[_attention_words(block.get("attention")), _mlp_words(block.get("mlp"))] += block.get("repeat", 1)
    for (attention, mlp), layers in kinds.items():
        table.add_row(str(layers), attention, mlp)
    out.print(table)


def _attention_words(attention: Document | None) -> str:
    if attention is None:
        return ""
    reach = [f"{key.removesuffix('_tokens')} {attention[key]}" for key in ("window_tokens", "chunk_tokens") if attention.get(key)]
    heads = f"{attention['heads']} heads"
    if attention["kind"] != "mla":
        heads += f", {attention.get('kv_heads') or attention['heads']} key/value, width {attention.get('head_dim', '')}"
    return ", ".join([attention["kind"], heads, *reach])


def _mlp_words(mlp: Document | None) -> str:
    if mlp is None:
        return ""
    if mlp["kind"] == "dense":
        return f"dense, width {mlp['hidden_size']}"
    shared = f", shared {mlp['shared_hidden_size']}" if mlp.get("shared_hidden_size") else ""
    return f"{mlp['experts']} experts, {mlp['top_k']} a token, width {mlp['hidden_size']}{shared}"


def _render_parameters(out: Console, parameters: Document) -> None:
    """Every part that is there, then the sums."""
    table = Table(title="parameters", title_justify="left")
    table.add_column("part")
    table.add_column("count", justify="right")
    for part, count in parameters["parts"].items():
        if count:
            note = " (not in the total)" if part == "mtp" else ""
            table.add_row(part.replace("_", " ") + note, f"{count:,}")
    for key in ("total", "active"):
        table.add_row(f"[bold]{key}[/]", f"[bold]{parameters[key]:,}[/]")
    out.print(table)


def _pairs(values: Document) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
