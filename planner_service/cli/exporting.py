"""Where an exported plan comes from, and where its files go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from planner_service.cli.backends import LocalBackend
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.plan_file import read_plan_file
from planner_service.client import PlannerClient
from planner_service.store.identifiers import is_plan_id


def export_document(plan: str, framework: str, plan_id: str | None, url: str | None) -> bytes:
    """The export of a plan in a file (made here), or of a plan id (made at the service)."""
    if not is_plan_id(plan):
        return LocalBackend().export(read_plan_file(Path(plan), plan_id), framework)
    if url is None:
        raise UnreadableInput(
            "the id of a plan needs a service: give --server or PLANNER_URL, or a file of `planner plan --output`"
        )
    with PlannerClient(url) as client:
        return client.export(plan, framework)


def write_files(directory: Path, files: list[dict[str, Any]]) -> Iterator[Path]:
    """Writes the files below the directory and nowhere else."""
    for file in files:
        relative = PurePosixPath(file["path"])
        if relative.is_absolute() or ".." in relative.parts:
            raise UnreadableInput(f"refused to write outside the directory: {file['path']}")
        path = directory / relative
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"], encoding="utf-8")
        except OSError as error:
            raise UnreadableInput(f"{path}: {error.strerror or error}") from error
        yield path
