"""POST /v1/searches, GET /v1/searches[/{id}], POST /v1/searches/{id}:cancel."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Annotated

import orjson
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from planner_service.api.bodies import json_body
from planner_service.api.cursors import decode_cursor, encode_cursor
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response, not_found
from planner_service.documents import json_array, json_object, search_document
from planner_service.problems import Problem
from planner_service.services import Services, services_of
from planner_service.states import TERMINAL, State
from planner_service.store.identifiers import is_search_id
from planner_service.store.records import Filters, NewSearch, SearchRecord
from planner_service.store.searches import QueueFull

router = APIRouter(prefix="/v1/searches", tags=["searches"])
WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)
WAIT_POLL_S = 0.1
PREFER = [
    {"name": "Prefer", "in": "header", "required": False, "schema": {"type": "string"}, "description": "wait=N, N <= 60 seconds"}
]


@router.post(
    "",
    operation_id="createSearch",
    response_class=Response,
    responses=documented(200, 202, 429, *BODY_ERRORS),
    openapi_extra={"parameters": PREFER, **documented_body("A problem", "model", "workload", "cluster")},
)
async def create_search(request: Request) -> Response:
    """Starts a search, or finds the one that answers an equal problem."""
    services = services_of(request)
    problem = await json_body(request)
    search = await to_thread.run_sync(_submit, services, problem)
    services.runner.wake()
    wait_s = _wait_s(request, services.settings.max_wait_s)
    if wait_s is not None:
        search = await _wait(services, search, wait_s)
    return _search_response(search, wait_s)


@router.get("", operation_id="listSearches", response_class=Response, responses=documented(200, 422))
async def list_searches(
    request: Request,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Searches, newest first, without their results; `next` is the cursor of the following page."""
    store = services_of(request).searches
    found = await to_thread.run_sync(store.page, limit + 1, decode_cursor(cursor) if cursor else None, Filters(state))
    page = found[:limit]
    following = encode_cursor(page[-1]) if len(found) > limit else None
    items = json_array(search_document(search, with_result=False).decode() for search in page)
    return json_response(json_object([("searches", items), ("next", orjson.dumps(following).decode())]))


@router.get("/{search_id}", operation_id="getSearch", response_class=Response, responses=documented(200, 404))
async def get_search(request: Request, search_id: str) -> Response:
    """State, progress and, when done, the result."""
    services = services_of(request)
    search = await to_thread.run_sync(_find, services, search_id)
    wait_s = _wait_s(request, services.settings.max_wait_s)
    if wait_s is not None:
        search = await _wait(services, search, wait_s)
    headers = {} if search.state in TERMINAL else {"Retry-After": "1"}
    return json_response(search_document(search), headers=headers)


@router.post("/{search_id}:cancel", operation_id="cancelSearch", response_class=Response, responses=documented(200, 202, 404))
async def cancel_search(request: Request, search_id: str) -> Response:
    """Stops a search; one that has ended stays as it is."""
    services = services_of(request)
    found = await to_thread.run_sync(services.searches.cancel, search_id) if is_search_id(search_id) else None
    if found is None:
        raise not_found("search")
    services.runner.look_for_cancels()
    return json_response(search_document(found), 200 if found.state in TERMINAL else 202, _location(found))


def _submit(services: Services, problem: dict[str, object]) -> SearchRecord:
    """Checks a problem and stores it, or finds its answer."""
    checked = services.solver.check(problem)
    document = orjson.dumps(problem).decode()
    try:
        new = NewSearch(
            document,
            checked.problem_digest,
            checked.request_digest,
            model=checked.model,
            framework=checked.framework,
            near_digest=checked.near_digest,
            versions=checked.versions,
        )
        return services.searches.submit(new).search
    except QueueFull:
        detail = f"{services.settings.max_queued_searches} searches are waiting already."
        raise Problem(429, "queue_full", detail, headers={"Retry-After": "10"}) from None


def _find(services: Services, search_id: str) -> SearchRecord:
    """The search, or 404."""
    found = services.searches.get(search_id) if is_search_id(search_id) else None
    if found is None:
        raise not_found("search")
    return found


def _wait_s(request: Request, largest_s: float) -> float | None:
    """Seconds the client would wait (RFC 7240), at most what the service allows; None when it did not say."""
    found = WAIT.search(", ".join(request.headers.getlist("prefer")))
    return min(float(found.group(1)), largest_s) if found else None


async def _wait(services: Services, search: SearchRecord, wait_s: float) -> SearchRecord:
    """The search once it has ended, or as it is when the time is over."""
    end_s = time.monotonic() + wait_s
    while search.state not in TERMINAL and (left_s := end_s - time.monotonic()) > 0:
        await asyncio.sleep(min(WAIT_POLL_S, left_s))
        search = await to_thread.run_sync(_find, services, search.id)
    return search


def _location(search: SearchRecord) -> dict[str, str]:
    return {"Location": f"/v1/searches/{search.id}"}


def _search_response(search: SearchRecord, wait_s: float | None) -> Response:
    """200 for a search that has ended, 202 for one that has not."""
    headers = _location(search)
    if wait_s is not None:
        headers["Preference-Applied"] = f"wait={wait_s:.0f}"
    if search.state in TERMINAL:
        return json_response(search_document(search), 200, headers)
    return json_response(search_document(search), 202, {**headers, "Retry-After": "1"})
