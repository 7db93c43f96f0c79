"""POST /v1/searches; GET, PATCH, DELETE /v1/searches/{id}; POST /v1/searches/{id}:cancel."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

import orjson
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from planner_service.api.answers import Answer, Key
from planner_service.api.bodies import SMALL_BODY_BYTES, json_body, raw_body
from planner_service.api.desk import Desk, desk_of
from planner_service.api.examples import EDIT, PROBLEM
from planner_service.api.finding import find_search, missing_search, search_answer
from planner_service.api.labels import edit_of, label_of
from planner_service.api.preferences import wait_for_end, wait_s
from planner_service.api.reader import read_problem
from planner_service.api.responses import (
    BODY_ERRORS,
    HEADERS,
    documented,
    documented_body,
    documented_header,
    json_response,
    known_created,
    tagged_response,
)
from planner_service.api.strict_route import StrictRoute
from planner_service.documents import is_proven
from planner_service.problems import FieldProblem, Problem
from planner_service.services import Services
from planner_service.solver_port import Checked
from planner_service.states import TERMINAL, State
from planner_service.store.identifiers import is_search_id
from planner_service.store.records import NewSearch, SearchRecord
from planner_service.store.searches import KeyReused, QueueFull

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=StrictRoute)
PREFER = documented_header("Prefer", "wait=N: answer when the search has ended, or after N <= 60 seconds")
KEY = documented_header("Idempotency-Key", "Names this request: sent again within a day, it gets the same search")
KEY_TEXT = re.compile(r"[\x21-\x7e]{1,200}")
FULL_RETRY_S = "10"


@router.post(
    "",
    operation_id="createSearch",
    response_class=Response,
    responses=documented("Search", 200, 202, 429, *BODY_ERRORS),
    openapi_extra={"parameters": [PREFER, KEY], **documented_body("Problem", PROBLEM)},
)
async def create_search(request: Request, label: Annotated[str | None, Query()] = None) -> Response:
    """Starts a search, or finds the one that answers an equal problem; `label` names a new one."""
    desk = desk_of(request)
    raw, names = await raw_body(request), {"label": label_of(label), "idempotency_key": _idempotency_key(request)}
    waits_s = wait_s(request, desk.services.settings.max_wait_s)
    generation = await desk.generation.now()
    asked = Key("post", hashlib.sha256(raw).digest()) if not any(names.values()) and len(raw) <= SMALL_BODY_BYTES else None
    kept = await desk.answers.find(asked) if asked else None
    desk.metrics.looked_up(kept is not None)
    if kept is not None:
        return _created(kept, State.DONE, waits_s)
    document, checked = await read_problem(desk, raw)
    search = await to_thread.run_sync(_submitted, desk.services, _new(document, checked, **names))
    if asked is not None and search.state is State.DONE:
        await to_thread.run_sync(_keep_proven, desk, asked, search, generation)
    desk.services.runner.wake()
    if waits_s is not None and search.state not in TERMINAL:
        await wait_for_end(desk, search.id, waits_s)
        search = await to_thread.run_sync(find_search, desk.services, search.id)
    return _created(search_answer(search), search.state, waits_s)


@router.get(
    "/{search_id}",
    operation_id="getSearch",
    response_class=Response,
    responses=documented("Search", 200, 304, 404, 410),
    openapi_extra={"parameters": [PREFER]},
)
async def get_search(request: Request, search_id: str) -> Response:
    """State, progress and, when done, the result; an ended search has an ETag."""
    desk = desk_of(request)
    key = Key("search", search_id)
    kept = await desk.answers.find(key)
    if kept is None:
        waits_s = wait_s(request, desk.services.settings.max_wait_s)
        if waits_s is not None and is_search_id(search_id):
            await wait_for_end(desk, search_id, waits_s)
        search, kept = await to_thread.run_sync(_read, desk, key)
        if search.state not in TERMINAL:
            return json_response(kept.body, headers={"Retry-After": "1"})
    return tagged_response(request, kept.body, kept.etag)


@router.patch(
    "/{search_id}",
    operation_id="editSearch",
    response_class=Response,
    responses=documented("Search", 200, 404, 410, *BODY_ERRORS),
    openapi_extra=documented_body("SearchEdit", EDIT),
)
async def edit_search(request: Request, search_id: str) -> Response:
    """Changes label, note or tags; null takes a label or note away. A search that has one is not evicted."""
    services = desk_of(request).services
    changes = edit_of(await json_body(request))
    search = await to_thread.run_sync(_edited, services, search_id, changes)
    return json_response(search_answer(search).body)


@router.delete(
    "/{search_id}",
    operation_id="deleteSearch",
    status_code=204,
    response_class=Response,
    responses=documented(None, 204, 404, 409, 410),
)
async def delete_search(request: Request, search_id: str) -> Response:
    """Deletes a search that has ended; its plans stay until they are evicted."""
    services = desk_of(request).services
    deleted = await to_thread.run_sync(services.searches.delete, search_id) if is_search_id(search_id) else None
    if deleted is None:
        raise await to_thread.run_sync(missing_search, services, search_id)
    if not deleted:
        detail = f"It has not ended; POST /v1/searches/{search_id}:cancel stops it."
        raise Problem(409, "not_ended", detail, [FieldProblem("", "not_ended", detail, tuple(sorted(TERMINAL)))])
    return Response(status_code=204, headers=HEADERS)


@router.post(
    "/{search_id}:cancel",
    operation_id="cancelSearch",
    response_class=Response,
    responses=documented("Search", 200, 202, 404, 410),
)
async def cancel_search(request: Request, search_id: str) -> Response:
    """Stops a search; one that has ended stays as it is."""
    services = desk_of(request).services
    found = await to_thread.run_sync(services.searches.cancel, search_id) if is_search_id(search_id) else None
    if found is None:
        raise await to_thread.run_sync(missing_search, services, search_id)
    services.runner.look_for_cancels()
    answer = search_answer(found)
    return json_response(answer.body, 200 if found.state in TERMINAL else 202, {"Location": answer.location})


def _new(document: str, checked: Checked, **names: str | None) -> NewSearch:
    """What is to be stored."""
    return NewSearch(
        document,
        checked.problem_digest,
        checked.request_digest,
        model=checked.model,
        framework=checked.framework,
        near_digest=checked.near_digest,
        versions=checked.versions,
        **names,  # type: ignore[arg-type]
    )


def _submitted(services: Services, new: NewSearch) -> SearchRecord:
    """Finds the answer of a request, or stores a new search if its space is not too large."""
    store = services.searches
    found = store.find_answer(new.problem_digest, new.request_digest, new.versions)
    if found is not None and new.idempotency_key is None:
        return found
    if found is None:
        services.admission.check(orjson.Fragment(new.document))
    try:
        return store.submit(new).search
    except QueueFull:
        detail = f"{services.settings.max_queued_searches} searches are waiting already; try again later."
        raise Problem(429, "queue_full", detail, headers={"Retry-After": FULL_RETRY_S}) from None
    except KeyReused:
        detail = "This Idempotency-Key came with another request before."
        finding = FieldProblem("/header/idempotency-key", "idempotency_key_reused", detail)
        raise Problem(422, "idempotency_key_reused", detail, [finding]) from None


def _keep_proven(desk: Desk, asked: Key, search: SearchRecord, generation: int) -> None:
    """A proven result answers the very same bytes again; `generation` is from before they were read."""
    if is_proven(search):
        desk.answers.keep(asked, search_answer(search), generation)


def _read(desk: Desk, key: Key) -> tuple[SearchRecord, Answer]:
    """The search, kept in memory when it has ended."""
    generation = desk.services.searches.generation()
    search = find_search(desk.services, str(key.identity))
    answer = search_answer(search)
    if search.state in TERMINAL:
        desk.answers.keep(key, answer, generation)
    return search, answer


def _edited(services: Services, search_id: str, changes: dict[str, object]) -> SearchRecord:
    """The search after the change."""
    found = services.searches.edit(search_id, **changes) if is_search_id(search_id) else None  # type: ignore[arg-type]
    if found is None:
        raise missing_search(services, search_id)
    return found


def _idempotency_key(request: Request) -> str | None:
    """The header, 422 when it is none."""
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    if len(given) > 1 or not KEY_TEXT.fullmatch(given[0]):
        finding = FieldProblem("/header/idempotency-key", "invalid", "One key of printable ASCII.", ("1 to 200 characters",))
        raise Problem(422, "invalid_parameter", "The Idempotency-Key is not valid.", [finding])
    return given[0]


def _created(answer: Answer, state: State, waited_s: float | None) -> Response:
    """200 for a search that has ended, 202 for one that has not."""
    headers = known_created(answer.location)
    if waited_s is not None:
        headers["Preference-Applied"] = f"wait={waited_s:.0f}"
    if state in TERMINAL:
        return json_response(answer.body, 200, headers)
    return json_response(answer.body, 202, {**headers, "Retry-After": "1"})
