"""`planner db ...`: the database of the service, looked at and looked after without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.markup import escape
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from planner_service.cli.context import console, write_raw
from planner_service.cli.exits import Exit, UnreadableInput, refusals_shown
from planner_service.cli.serving import database_url, read_settings
from planner_service.client import ServiceUnreachable
from planner_service.settings import Settings
from planner_service.store.attempts import ReproductionStore
from planner_service.store.checkup import counts, findings
from planner_service.store.engine import open_engine
from planner_service.store.eviction import EvictionStore
from planner_service.store.identifiers import is_search_id
from planner_service.store.migrate import current_revision, head_revision, upgrade

DATABASE_HELP = "A SQLite file, or sqlite:///FILE or postgresql://..."
DAY_S = 86_400.0
Database = Annotated[str | None, typer.Option("--database", help=DATABASE_HELP)]
app = typer.Typer(no_args_is_help=True, help="The database of the service.")


@contextmanager
def opened(database: str | None) -> Iterator[tuple[Engine, Settings]]:
    """An engine, closed at the end; a database that does not answer is a service that failed."""
    with refusals_shown(console(stderr=True), remote=True):
        settings = read_settings(database_url=database_url(database))
        engine = open_engine(settings.database_url)
        try:
            yield engine, settings
        except SQLAlchemyError as error:
            raise ServiceUnreachable(f"the database does not answer: {str(error).splitlines()[0]}") from error
        finally:
            engine.dispose()


def say(text: str) -> None:
    """A plain line."""
    console().print(escape(text), highlight=False, soft_wrap=True)


@app.command("upgrade")
def upgrade_database(database: Database = None) -> None:
    """Bring the database to the newest schema."""
    with opened(database) as (engine, _):
        upgrade(engine)
        say(f"database at revision {current_revision(engine)}")


@app.command("status")
def status(database: Database = None) -> None:
    """Revision, searches by state, plans and bytes."""
    with opened(database) as (engine, _):
        revision, newest = current_revision(engine), head_revision()
        say(f"revision {revision or 'none'}" + ("" if revision == newest else f", the newest is {newest}: planner db upgrade"))
        if revision != newest:
            raise typer.Exit(Exit.SERVICE)
        for name, count in counts(engine).items():
            say(f"{name}: {count}")
        say(f"bytes of requests, results and plans: {EvictionStore(engine).size_bytes()}")
        for search_id in ReproductionStore(engine).ids():
            say(f"poisoned: {search_id} (planner db reproduction {search_id})")


@app.command("evict")
def evict(
    database: Database = None,
    older_than_days: Annotated[float | None, typer.Option(help="Evict what is older; default the setting, 0 never.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Evict the oldest beyond it; default the setting, 0 never.")] = None,
) -> None:
    """Evict old searches and plans; what carries a label, note or tag, or is pinned, stays."""
    with opened(database) as (engine, settings):
        days = settings.store_max_age_days if older_than_days is None else older_than_days
        most = settings.store_max_bytes if max_bytes is None else max_bytes
        gone = EvictionStore(engine).evict(days * DAY_S, most)
        say(f"evicted {gone.searches} searches and {gone.plans} plans; {gone.size_bytes} bytes are left")


@app.command("check")
def check(database: Database = None) -> None:
    """Look for damage: pages, references, states, events, checksums of plans."""
    with opened(database) as (engine, _):
        if current_revision(engine) != head_revision():
            raise UnreadableInput("the database has another schema: planner db upgrade")
        found = findings(engine)
        for finding in found:
            say(finding)
        say(f"{len(found)} findings" if found else "no findings")
        if found:
            raise typer.Exit(Exit.SERVICE)


@app.command("reproduction")
def reproduction(search_id: str, database: Database = None) -> None:
    """Print what a poisoned search left: request, versions, last progress, and how each attempt ended."""
    with opened(database) as (engine, _):
        found = ReproductionStore(engine).get(search_id) if is_search_id(search_id) else None
        if found is None:
            raise UnreadableInput(f"no poisoned search has the id {search_id}")
        write_raw(found.body.encode())
