"""GET /openapi.json: the document of this interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.responses import tagged_response
from planner_service.api.strict_route import StrictRoute


def openapi_router(document: Callable[[], dict[str, Any]]) -> APIRouter:
    """The route; the document itself does not list it."""
    router = APIRouter(route_class=StrictRoute)

    @router.get("/openapi.json", include_in_schema=False, response_class=Response)
    async def openapi(request: Request) -> Response:
        return tagged_response(request, await to_thread.run_sync(lambda: orjson.dumps(document())))

    return router
