"""The commands about measured runs, one function each; imported by the package to join the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

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
    as_json: AsJson = False,
) -> None:
    """Predict measured runs and compare: step time, memory, order of layouts, what fits."""
    with refusals_shown(console(stderr=True), remote=False):
        report = validation_report(files, settings or [])
        if as_json:
            write_raw(orjson.dumps(report))
        else:
            render_validation(console(), report)
