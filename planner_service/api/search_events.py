"""GET /v1/searches/{id}/events: what happens to a search, as server-sent events that can be replayed.

Each event has the number it has in the store's log as its `id`, so a client that was cut off goes on after `Last-Event-ID`
and misses nothing that is kept. `state`, `progress` and `incumbent` tell changes; `done` is the last one and carries the
whole search, whichever way it ended (`gone` when it was deleted meanwhile). Asked again after that, the answer is 204, which
tells a browser to stop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NoReturn

import orjson
from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from planner_service.api.desk import Desk, desk_of
from planner_service.api.finding import find_search, search_answer
from planner_service.api.front import is_head
from planner_service.api.responses import HEADERS, documented, documented_header
from planner_service.api.strict_route import StrictRoute
from planner_service.problems import FieldProblem, Problem
from planner_service.services import Services
from planner_service.states import TERMINAL
from planner_service.store.events import STATE
from planner_service.store.identifiers import is_search_id

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=StrictRoute)
MEDIA_TYPE = "text/event-stream"
HEARTBEAT_S = 15.0
BATCH = 200
MAX_SEQ = 2**31 - 1
GONE = b'event: gone\ndata: {"state":"deleted"}\n\n'
LAST_EVENT_ID = documented_header("Last-Event-ID", "Go on after this event")


@router.get(
    "/{search_id}/events",
    operation_id="followSearch",
    response_class=Response,
    responses=documented(None, 200, 204, 404, 410, 429, media=MEDIA_TYPE),
    openapi_extra={"parameters": [LAST_EVENT_ID]},
)
async def follow_search(request: Request, search_id: str) -> Response:
    """State, progress and incumbents as they come, then `done` with the whole search."""
    desk = desk_of(request)
    after = _last_event_id(request)
    latest = await to_thread.run_sync(desk.services.events.latest, [search_id]) if is_search_id(search_id) else {}
    if search_id not in latest:
        await to_thread.run_sync(find_search, desk.services, search_id)
    state, newest = latest[search_id]
    if state in TERMINAL and after >= newest:
        return Response(status_code=204, headers=HEADERS)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **HEADERS}
    if is_head(request.scope):
        return Response(headers=headers, media_type=MEDIA_TYPE)
    most = desk.services.settings.max_event_streams
    if desk.metrics.open_streams >= most:
        detail = f"{most} event streams are open already; GET /v1/searches/{search_id} can be polled."
        raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "5"})
    return _CountedStream(desk, _blocks(desk, search_id, after), headers)


class _CountedStream(StreamingResponse):
    """Counted from its making, not from its first byte: of many that are asked for at once none is let in beyond the bound."""

    def __init__(self, desk: Desk, blocks: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        super().__init__(blocks, headers=headers, media_type=MEDIA_TYPE)
        self._metrics = desk.metrics
        self._metrics.open_streams += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the end, or until the client goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._metrics.open_streams -= 1


async def _blocks(desk: Desk, search_id: str, after: int) -> AsyncIterator[bytes]:
    """Events after `after`, until the last one."""
    events = desk.services.events
    yield b"retry: 1000\n\n"
    while True:
        batch = await to_thread.run_sync(events.after, search_id, after, BATCH)
        for event in batch:
            after = event.seq
            if event.kind == STATE and orjson.loads(event.data)["state"] in TERMINAL:
                yield await to_thread.run_sync(_end, desk.services, search_id, after)
                return
            yield _block(after, event.kind, event.data)
        if batch:
            continue
        if search_id not in await to_thread.run_sync(events.latest, [search_id]):
            yield GONE
            return
        if not await desk.watcher.changed(search_id, after, HEARTBEAT_S):
            yield b": still there\n\n"


def _end(services: Services, search_id: str, seq: int) -> bytes:
    """The last event."""
    try:
        return _block(seq, "done", search_answer(find_search(services, search_id)).body.decode())
    except Problem:
        return GONE


def _block(seq: int, kind: str, data: str) -> bytes:
    """One event; JSON texts have no line ends."""
    return f"id: {seq}\nevent: {kind}\ndata: {data}\n\n".encode()


def _last_event_id(request: Request) -> int:
    """The number after which to go on; 0 for the beginning."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    if not (given.isascii() and given.isdigit() and len(given) <= 10 and int(given) <= MAX_SEQ):
        _refuse_last_event_id()
    return int(given)


def _refuse_last_event_id() -> NoReturn:
    finding = FieldProblem("/header/last-event-id", "invalid", "This is the id of no event.", (f"0 to {MAX_SEQ}",))
    raise Problem(422, "invalid_parameter", "The Last-Event-ID is not valid.", [finding])
