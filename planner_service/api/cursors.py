"""Opaque cursors of lists: the (created_at, id) after which the next page begins."""

from __future__ import annotations

import base64
import binascii

from planner_service.problems import FieldProblem, Problem
from planner_service.store.identifiers import is_search_id
from planner_service.store.records import SearchRecord

MAX_MOMENT_US = 2**62


def encode_cursor(search: SearchRecord) -> str:
    """The cursor that continues after this search."""
    return base64.urlsafe_b64encode(f"{search.created_at_us}.{search.id}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[int, str]:
    """What a cursor says; 422 for anything that is not one of ours."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        raise _unknown() from None
    moment, _, search_id = text.partition(".")
    if not (moment.isdigit() and len(moment) < 20 and int(moment) < MAX_MOMENT_US and is_search_id(search_id)):
        raise _unknown()
    return int(moment), search_id


def _unknown() -> Problem:
    error = FieldProblem("/query/cursor", "invalid", "This is not a cursor that this service gave out.")
    return Problem(422, "invalid_parameter", "The cursor is not valid.", [error])
