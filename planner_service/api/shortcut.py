"""The two questions that are asked most, answered before anything else runs when their answers are in memory.

`GET /v1/plans/{id}` and `POST /v1/searches` with nothing special about them: no query, no preference, no condition, a small
body that came in one piece. Everything else, and every answer that is not kept or may not be true any more, goes to the routes,
which answer the same bytes and headers.
"""

from __future__ import annotations

import asyncio
import hashlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner_service.api.answers import Answer, Key
from planner_service.api.desk import Desk
from planner_service.api.responses import IMMUTABLE, known_created, tagged

PLANS, SEARCHES = "/v1/plans/", "/v1/searches"
PLAIN = {
    b"accept": (b"*/*", b"application/json"),
    b"content-type": (b"application/json",),
    b"content-encoding": (),
    b"transfer-encoding": (),
    b"if-none-match": (),
    b"prefer": (),
    b"idempotency-key": (),
    b"expect": (),
}
"""Headers that matter, with the values that ask for nothing special."""
MAX_LENGTH_DIGITS = 5
ROUTE_KEY = "planner.route"


class Shortcut:
    """Plain ASGI in front of the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers or passes on."""
        if scope["type"] == "http" and not scope["query_string"]:
            method, path = scope["method"], scope["path"]
            if method == "GET" and path.startswith(PLANS) and _is_plain(scope):
                if await self._plan(scope, path[len(PLANS) :], send):
                    return
            elif method == "POST" and path == SEARCHES and _is_plain(scope):
                first = await _first_message(scope, receive)
                if first is not None:
                    if await self._search(scope, first, send):
                        return
                    receive = _again(first, receive)
        await self._app(scope, receive, send)

    async def _plan(self, scope: Scope, plan_id: str, send: Send) -> bool:
        desk: Desk = scope["app"].state.desk
        answer = await desk.answers.find(Key("plan", plan_id))
        if answer is None:
            return False
        desk.metrics.looked_up(True)
        scope[ROUTE_KEY] = PLANS + "{plan_id}"
        await _send(answer, tagged(answer.etag, IMMUTABLE), send)
        return True

    async def _search(self, scope: Scope, first: Message, send: Send) -> bool:
        body = first.get("body", b"")
        if first["type"] != "http.request" or first.get("more_body") or not body:
            return False
        desk: Desk = scope["app"].state.desk
        answer = await desk.answers.find(Key("post", hashlib.sha256(body).digest()))
        if answer is None:
            return False
        desk.metrics.looked_up(True)
        scope[ROUTE_KEY] = SEARCHES
        await _send(answer, known_created(answer.location), send)
        return True


def _is_plain(scope: Scope) -> bool:
    """Whether no header asks for something special; a body must have a type and a small length."""
    typed = sized = scope["method"] == "GET"
    for name, value in scope["headers"]:
        if name in PLAIN:
            if value not in PLAIN[name]:
                return False
            typed = typed or name == b"content-type"
        elif name == b"content-length":
            sized = len(value) <= MAX_LENGTH_DIGITS
    return typed and sized


async def _first_message(scope: Scope, receive: Receive) -> Message | None:
    """The first piece of the body, None when it does not come; then the route waits for it, and refuses in the end.

    Mostly it is there already, and then no timer is needed, which would cost more than all the rest.
    """
    ready = receive()
    try:
        ready.send(None)  # type: ignore[attr-defined]
    except StopIteration as ended:
        message: Message = ended.value
        return message
    ready.close()  # type: ignore[attr-defined]
    try:
        async with asyncio.timeout(scope["app"].state.desk.services.settings.body_timeout_s):
            return await receive()
    except TimeoutError:
        return None


def _again(first: Message, receive: Receive) -> Receive:
    """`receive` with a message that was taken already in front."""
    waiting = [first]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


async def _send(answer: Answer, headers: dict[str, str], send: Send) -> None:
    """A whole answer."""
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    raw += [(b"content-length", str(len(answer.body)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body})
