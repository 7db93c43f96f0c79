"""The commands about measured runs, one function each; imported by the package to join the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.markup import escape

from planner_service.cli.calibrating import profile_document, render_profile, write_profile
from planner_service.cli.commands import AsJson, app
from planner_service.cli.context import console, write_raw
from planner_service.cli.exits import refusals_shown
from planner_service.cli.validating import render_validation, validation_report


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="CSV files of measured runs.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="column=value overrides a column, column= blanks it.")
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Summaries only, rows hidden.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict measured runs and compare: step time, memory, order of layouts, what fits."""
    errors = console(stderr=True)

    def progress(name: str, rows: int) -> None:
        errors.print(f"[dim]{escape(name)}: {rows} rows[/]", highlight=False)

    with refusals_shown(errors, remote=False):
        report = validation_report(files, settings or [], progress)
        if as_json:
            write_raw(orjson.dumps(report.document()))
        else:
            render_validation(console(), report, rows=not summary)


@app.command()
def calibrate(
    files: Annotated[list[Path], typer.Argument(help="A CSV of measured runs, outputs of nccl-tests, or both.")],
    base: Annotated[
        str | None, typer.Option("--profile", help="Software profile to refit; default: the runs' framework.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the new profile.")] = "calibrated",
    device: Annotated[str | None, typer.Option(help="Device of nccl-tests outputs that do not say.")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks of nccl-tests outputs that do not say.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of nccl-tests outputs that do not say.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the profile as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Refit the constants of a software profile, and rates of devices, to your own measurements."""
    with refusals_shown(console(stderr=True), remote=False):
        document = profile_document(files, name, base, device, ranks, nodes)
        if output is not None:
            write_profile(output, document)
        if as_json:
            write_raw(orjson.dumps(document))
        else:
            render_profile(console(), document)
