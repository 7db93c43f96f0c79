"""`planner import lengths`: files of sequence lengths, read here in pieces however large they are, or sent to a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer
from rich.console import Console
from rich.markup import escape

from planner_service.cli.commands import AsJson, Server, imports
from planner_service.cli.context import backend, console, server_url, write_raw
from planner_service.cli.exits import UnreadableInput, refusals_shown
from planner_service.solver_port import LengthWish

MAX_ROWS_SHOWN = 12


@imports.command("lengths")
def import_lengths(
    files: Annotated[list[Path], typer.Argument(help="Megatron .idx, Parquet, JSONL, JSON, .npy, CSV, or a number a line; .gz.")],
    max_tokens: Annotated[int | None, typer.Option("--max", help="Longest sequence of the model, in tokens.")] = None,
    column: Annotated[str | None, typer.Option(help="Column or member that holds the lengths, tokens or text.")] = None,
    characters_per_token: Annotated[
        float | None, typer.Option(help="Measure of text without a tokenizer: how many characters make a token.")
    ] = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """The sequence lengths in files, ready for a problem, with moments, quantiles and packing efficiency."""
    errors = console(stderr=True)
    wish = LengthWish(column, max_tokens, characters_per_token)
    with refusals_shown(errors, server_url(server) is not None), opened(files) as streams, backend(server) as place:
        content = place.import_lengths(streams, wish)
        if as_json:
            write_raw(content)
        else:
            render_lengths(console(), errors, orjson.loads(content))


@contextmanager
def opened(paths: list[Path]) -> Iterator[list[tuple[str, BinaryIO]]]:
    """The files, open for reading."""
    with ExitStack() as stack:
        streams: list[tuple[str, BinaryIO]] = []
        for path in paths:
            try:
                streams.append((path.name, stack.enter_context(path.open("rb"))))
            except (OSError, ValueError) as error:
                raise UnreadableInput(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        yield streams


def render_lengths(out: Console, errors: Console, document: dict[str, Any]) -> None:
    """Figures as lines, then the form for a problem, shortened when it is long."""
    for warning in document["warnings"]:
        errors.print(f"[yellow]note[/] {escape(warning)}")
    figures, limit = document["statistics"], document["limit"]
    lines = [
        f"{figures['documents']:,} documents, {figures['tokens']:,} tokens ({', '.join(document['formats'])})",
        f"mean {figures['mean_tokens']:,.1f}, standard deviation {figures['standard_deviation_tokens']:,.1f}, "
        f"skewness {figures['skewness']:.2f}, from {figures['min_tokens']:,} to {figures['max_tokens']:,} tokens",
        "quantiles " + ", ".join(f"{name}: {value:,}" for name, value in figures["quantiles_tokens"].items()),
        f"above {limit['max_sequence_length']:,} tokens: {limit['documents_above_fraction']:.2%} of documents, "
        f"{limit['tokens_in_documents_above_fraction']:.2%} of tokens; cutting loses {limit['tokens_cut_fraction']:.2%}",
        f"rows of {limit['max_sequence_length']:,} tokens: {limit['padded_efficiency']:.1%} full when padded, "
        f"{limit['packed_efficiency']:.1%} when packed (first-fit decreasing)",
    ]
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)
    out.print("\n[bold]for a problem[/] (all of it with --json; a problem file may say sequence_lengths: {file: PATH} instead)")
    out.print_json(data={"sequence_lengths": _shortened(document["sequence_lengths"])}, indent=None)


def _shortened(form: dict[str, Any]) -> dict[str, Any]:
    """The longest rows of a long list of counts."""
    rows = form.get("counts", ())
    if len(rows) <= MAX_ROWS_SHOWN:
        return form
    return {"counts": [*rows[: MAX_ROWS_SHOWN - 1], f"... {len(rows) - MAX_ROWS_SHOWN} more ...", rows[-1]]}
