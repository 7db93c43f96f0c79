"""`planner calibrate`: measured runs and nccl-tests outputs to a profile, on the terminal or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import solver
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.inputs import read_file

Document = dict[str, Any]


def profile_document(
    files: Sequence[Path], name: str, base: str | None, device: str | None, ranks: int | None, nodes: int | None
) -> Document:
    """The profile that the files give; raises UnreadableInput. A CSV with a row_id column holds runs, other text nccl-tests."""
    runs: list[str] = []
    collectives = []
    for path in files:
        try:
            text = read_file(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UnreadableInput(f"{path}: not UTF-8 text") from error
        (runs if "row_id" in text.split("\n", 1)[0].split(",") else collectives).append(text)
    if len(runs) > 1:
        raise UnreadableInput("one CSV of runs at a time")
    measurements = solver.Measurements(runs[0] if runs else None, tuple(collectives), device, ranks, nodes)
    try:
        return solver.calibrate(measurements, name=name, base=base)
    except solver.InvalidProblem as error:
        raise UnreadableInput("; ".join(f"{item.pointer}: {item.message}" for item in error.errors)) from error


def write_profile(path: Path, document: Document) -> None:
    """The document as JSON."""
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or error}") from error


def render_profile(out: Console, document: Document) -> None:
    """Constants before and after, what set them, and the error of the profile."""
    out.print(f"[bold]{escape(document['name'])}[/], from {escape(document['base'])}", highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("constant")
    for title in ("before", "after"):
        table.add_column(title, justify="right")
    table.add_column("set by")
    for entry in document["constants"]:
        name = f"{escape(entry['of'])} {escape(entry['name'])}"
        table.add_row(name, f"{entry['before']:.4g}", f"{entry['after']:.4g}", entry["set_by"])
    out.print(table)
    error = document.get("error")
    if error:
        text = f"{error['rows']} runs: median error {error['median_before']:.1%} before, {error['median_after']:.1%} after, "
        text += f"{error['median_left_out']:.1%} on runs left out of the fit"
        out.print(text, highlight=False)
        fraction = document["software"]["assumptions"]["time_error_fraction"]
        out.print(f"predictions carry ±{fraction:.1%} (central 90 %)", highlight=False)
    for row_id, reason in document["rows"]["refused"].items():
        out.print(f"  not used: {escape(row_id)}: {escape(reason)}", highlight=False)
