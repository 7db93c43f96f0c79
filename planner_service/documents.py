"""Documents that are assembled from stored JSON texts without parsing them, so that they stay byte for byte the same."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from planner_service.store.clock import iso_time
from planner_service.store.records import SearchRecord

PROVEN = ("optimal", "infeasible")


def json_object(members: Iterable[tuple[str, str]]) -> bytes:
    """A JSON object of members whose values are already JSON texts."""
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members) + "}").encode()


def json_array(texts: Iterable[str]) -> str:
    """A JSON array of JSON texts."""
    return "[" + ",".join(texts) + "]"


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


def is_proven(search: SearchRecord) -> bool:
    """Whether the search has ended with a proof, so that its result answers every equal problem."""
    return search.result is not None and orjson.loads(search.result).get("status") in PROVEN


def search_document(search: SearchRecord, with_result: bool = True) -> bytes:
    """A search as clients see it; `result` is the stored text."""
    finished = iso_time(search.finished_at_us) if search.finished_at_us is not None else None
    members = [
        ("id", _text(search.id)),
        ("state", _text(search.state)),
        ("problem_digest", _text(search.problem_digest)),
        ("request_digest", _text(search.request_digest)),
        ("model", _text(search.model)),
        ("framework", _text(search.framework)),
        ("label", _text(search.label)),
        ("note", _text(search.note)),
        ("tags", _text(list(search.tags))),
        ("created_at", _text(iso_time(search.created_at_us))),
        ("finished_at", _text(finished)),
        ("progress", search.progress),
    ]
    if with_result:
        members += [("result", search.result or "null"), ("error", search.error or "null")]
    return json_object(members)
