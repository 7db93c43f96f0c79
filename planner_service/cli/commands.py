"""The commands of `planner`, one function each; the work is in the modules beside this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.markup import escape

from planner_service.cli import database as database_commands
from planner_service.cli.context import backend, console, server_url, write_raw
from planner_service.cli.database import DATABASE_HELP
from planner_service.cli.demo import run_demo
from planner_service.cli.doctor import examine
from planner_service.cli.exits import VERDICT_EXITS, Exit, refusals_shown, search_exit
from planner_service.cli.exporting import export_document, write_files
from planner_service.cli.inputs import load_document
from planner_service.cli.plan_file import check_plan_file, write_plan_file
from planner_service.cli.progress import ProgressLine
from planner_service.cli.render_other import render_evaluation, render_export, render_import
from planner_service.cli.render_search import render_search
from planner_service.cli.serving import database_url, read_settings, serve_forever, work_forever

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Finds the fastest training layout of a model on a cluster, with a proof."
)
imports = typer.Typer(no_args_is_help=True, help="Reads a foreign file and prints what was understood.")
app.add_typer(imports, name="import")
app.add_typer(database_commands.app, name="db")

Server = Annotated[str | None, typer.Option("--server", help="URL of a service; default PLANNER_URL, else in this process.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly what HTTP returns.")]


@app.command()
def plan(
    problem: Annotated[str, typer.Argument(help="Problem file, YAML or JSON; - is standard input.")],
    as_json: AsJson = False,
    server: Server = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the plans to a file for `planner export`.")
    ] = None,
) -> None:
    """Search for the best layout of a problem."""
    out, errors = console(), console(stderr=True)
    remote = server_url(server) is not None
    with refusals_shown(errors, remote), backend(server) as place:
        document = load_document(problem)
        if output is not None:
            check_plan_file(output)
        with ProgressLine(errors) as line:
            content, plans = place.search(document, line.update)
        if output is not None:
            write_plan_file(output, document, content, plans)
        search = orjson.loads(content)
        if as_json:
            write_raw(content)
        else:
            render_search(out, errors, search)
        raise typer.Exit(search_exit(search, remote))


@app.command()
def evaluate(problem: str, layout: str, as_json: AsJson = False, server: Server = None) -> None:
    """Judge one layout: is it legal, does it fit, how fast is it?"""
    errors = console(stderr=True)
    with refusals_shown(errors, server_url(server) is not None), backend(server) as place:
        content = place.evaluate(load_document(problem), load_document(layout))
        evaluation = orjson.loads(content)
        if as_json:
            write_raw(content)
        else:
            render_evaluation(console(), evaluation)
        raise typer.Exit(VERDICT_EXITS[evaluation["verdict"]])


@app.command()
def export(
    plan: Annotated[str, typer.Argument(help="A file of `planner plan --output`, or the id of a plan at a service.")],
    framework: Annotated[str, typer.Argument(help="For example megatron-core.")],
    directory: Annotated[Path | None, typer.Option("--output", "-o", help="Write the files into this directory.")] = None,
    plan_id: Annotated[str | None, typer.Option("--plan", help="Another plan of the file than the best.")] = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Write the configuration that runs a plan in a framework."""
    errors, url = console(stderr=True), server_url(server)
    with refusals_shown(errors, url is not None):
        content = export_document(plan, framework, plan_id, url)
        document = orjson.loads(content)
        if directory is not None:
            for path in write_files(directory, document["files"]):
                errors.print(f"wrote {escape(str(path))}", highlight=False, soft_wrap=True)
        if as_json:
            write_raw(content)
        elif directory is not None:
            console().print(document["command"], markup=False, highlight=False, soft_wrap=True)
        else:
            render_export(console(), document)


@imports.command("hf-config")
def import_hf_config(file: str, as_json: AsJson = False, server: Server = None) -> None:
    """The explicit sizes that a Hugging Face config.json means."""
    errors = console(stderr=True)
    with refusals_shown(errors, server_url(server) is not None), backend(server) as place:
        content = place.import_hf_config(load_document(file, foreign=True))
        if as_json:
            write_raw(content)
        else:
            render_import(console(), errors, orjson.loads(content))


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen at; only loopback unless PLANNER_ALLOW_REMOTE is set.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    database: Annotated[str | None, typer.Option(help=DATABASE_HELP)] = None,
) -> None:
    """Run the HTTP service; the database is created and migrated at start."""
    with refusals_shown(console(stderr=True), remote=True):
        serve_forever(host, port, database)


@app.command()
def demo(
    problem: Annotated[str | None, typer.Option(help="Another problem file than the packaged example.")] = None,
    keep: Annotated[bool, typer.Option(help="Leave the service running until Ctrl-C.")] = False,
) -> None:
    """Start a service, send it a problem, show the certified plan, stop the service."""
    errors = console(stderr=True)
    with refusals_shown(errors, remote=True):
        raise typer.Exit(run_demo(console(), errors, problem, keep))


@app.command()
def worker(
    database: Annotated[str | None, typer.Option(help=DATABASE_HELP)] = None,
    slots: Annotated[int | None, typer.Option(min=1, max=64, help="Searches at once; default processors - 1.")] = None,
) -> None:
    """Run queued searches of a database beside its servers, without an HTTP interface."""
    with refusals_shown(console(stderr=True), remote=True):
        work_forever(database, slots)


@app.command()
def doctor(
    database: Annotated[str | None, typer.Option(help=DATABASE_HELP)] = None,
) -> None:
    """Check whether this machine can run the service."""
    with refusals_shown(console(stderr=True), remote=True):
        found = examine(read_settings(database_url=database_url(database)))
    for name, good, text in found:
        word = "[green]ok[/]" if good else "[bold red]wrong[/]"
        console().print(f"{word}  {name}: {escape(text)}", highlight=False, soft_wrap=True)
    if not all(good for _, good, _ in found):
        raise typer.Exit(Exit.SERVICE)


def main() -> None:
    """Entry point: wrong usage (errors of the parser can `show` themselves) is 64, Ctrl-C 130, anything unexpected 1."""
    errors = console(stderr=True)
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = Exit.OK
    except Exception as error:
        show = getattr(error, "show", None)
        if callable(show):
            show()
            sys.exit(Exit.USAGE)
        errors.print(f"[bold red]internal error[/] {type(error).__name__}: {escape(str(error))}", soft_wrap=True)
        code = Exit.INTERNAL
    sys.exit(int(code or 0))
