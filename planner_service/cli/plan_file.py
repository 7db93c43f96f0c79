"""The file that `planner plan --output` writes and `planner export` reads: {problem, search, plans}.

`plans` holds each plan of the result as {plan, problem}, where `problem` is the normal form it follows from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from planner_service.body import parse_json, require_object
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.inputs import read_file
from planner_service.store.records import StoredPlan


def check_plan_file(path: Path) -> None:
    """Notice before a search that its plans could not be written there."""
    if path.is_dir():
        raise UnreadableInput(f"{path} is a folder")
    if not path.absolute().parent.is_dir():
        raise UnreadableInput(f"{path}: there is no such folder to write into")


def write_plan_file(path: Path, problem: dict[str, Any], search: bytes, plans: tuple[StoredPlan, ...]) -> None:
    """Writes the file; a plan at a server is written with the problem that was sent."""
    document = orjson.loads(search)
    known = [{"plan": orjson.loads(plan.body), "problem": orjson.loads(plan.context)} for plan in plans]
    best = (document["result"] or {}).get("plan")
    if best is not None and not known:
        known = [{"plan": best, "problem": problem}]
    content = orjson.dumps({"problem": problem, "search": document, "plans": known}, option=orjson.OPT_INDENT_2)
    try:
        path.write_bytes(content + b"\n")
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or error}") from error


def read_plan_file(path: Path, plan_id: str | None) -> StoredPlan:
    """A plan of the file: the one named, else the best of the search."""
    document = require_object(parse_json(read_file(path)))
    try:
        plans = {entry["plan"]["id"]: entry for entry in document["plans"]}
        best = (document["search"].get("result") or {}).get("plan") or {}
        wanted = plan_id or best.get("id")
        if wanted is None:
            raise UnreadableInput(f"{path}: the search found no plan")
        if wanted not in plans:
            raise UnreadableInput(f"{path}: there is no plan {wanted}; allowed: {', '.join(plans)}")
        entry = plans[wanted]
        return StoredPlan(wanted, orjson.dumps(entry["plan"]).decode(), orjson.dumps(entry["problem"]).decode())
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableInput(f"{path}: this is not a file of `planner plan --output`") from error
