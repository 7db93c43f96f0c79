"""GET /v1/searches: pages of searches, newest first, by what is known of them."""

from __future__ import annotations

from typing import Annotated

import orjson
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime
from starlette.responses import Response

from planner_service.api.cursors import decode_cursor, encode_cursor
from planner_service.api.desk import desk_of
from planner_service.api.responses import documented, json_response
from planner_service.api.strict_route import StrictRoute
from planner_service.documents import json_array, json_object, search_document
from planner_service.states import State
from planner_service.store.records import Filters

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=StrictRoute)
Text = Annotated[str | None, Query(min_length=1, max_length=200)]
Digest = Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[AwareDatetime | None, Query(description="RFC 3339 with an offset, such as 2026-01-31T12:00:00Z")]


@router.get("", operation_id="listSearches", response_class=Response, responses=documented("SearchList", 200))
async def list_searches(
    request: Request,
    state: State | None = None,
    label: Text = None,
    tag: Text = None,
    model: Text = None,
    framework: Text = None,
    problem_digest: Digest = None,
    request_digest: Digest = None,
    created_after: Moment = None,
    created_before: Moment = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Searches without their results; `next` is the cursor of the following page, null on the last one."""
    after_us, before_us = _microseconds(created_after), _microseconds(created_before)
    filters = Filters(state, label, tag, model, framework, problem_digest, request_digest, after_us, before_us)
    place = decode_cursor(cursor) if cursor else None
    found = await to_thread.run_sync(desk_of(request).services.searches.page, limit + 1, place, filters)
    page = found[:limit]
    following = encode_cursor(page[-1]) if len(found) > limit else None
    items = json_array(search_document(search, with_result=False).decode() for search in page)
    return json_response(json_object([("searches", items), ("next", orjson.dumps(following).decode())]))


def _microseconds(moment: AwareDatetime | None) -> int | None:
    """As the store keeps time."""
    return None if moment is None else round(moment.timestamp() * 1e6)
