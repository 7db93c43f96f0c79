"""The outermost layer of our own: HEAD is GET without its body, and every request is counted and timed."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner_service.api.metrics import OTHER, Metrics
from planner_service.api.shortcut import ROUTE_KEY

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
CLOSED = "the handler is closed"
"""What uvloop says when an answer is written to a client that asked several things at once and left."""
HEAD_KEY = "planner.head"


class Front:
    """Plain ASGI, because it runs for every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; other kinds of connection pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        method: str = scope["method"]
        status, is_gone = 500, False
        is_head = method == "HEAD"
        if is_head:
            scope = {**scope, "method": "GET", HEAD_KEY: True}

        async def answer(message: Message) -> None:
            nonlocal status, is_gone
            if is_gone:
                return
            if message["type"] == "http.response.start":
                status = message["status"]
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            try:
                await send(message)
            except RuntimeError as error:
                is_gone = CLOSED in str(error)
                if not is_gone:
                    raise

        try:
            await self._app(scope, receive, answer)
        finally:
            route = scope.get(ROUTE_KEY) or getattr(scope.get("route"), "path", OTHER)
            known = method if method in METHODS else OTHER
            self._metrics.answered(route, known, status, time.perf_counter() - began_s)


def is_head(scope: Scope) -> bool:
    """Whether the client wants the head of the answer only."""
    return bool(scope.get(HEAD_KEY))
