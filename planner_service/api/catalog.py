"""GET /v1/devices, /v1/models, /v1/frameworks: what can be named in a problem. They stay as they are while the server runs."""

from __future__ import annotations

from collections.abc import Callable

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.answers import Answer, Key
from planner_service.api.desk import desk_of
from planner_service.api.responses import documented, etag_of, tagged_response
from planner_service.api.strict_route import StrictRoute

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=StrictRoute)


@router.get("/devices", operation_id="listDevices", response_class=Response, responses=documented("Devices", 200, 304))
async def list_devices(request: Request) -> Response:
    """Devices with their aliases and figures."""
    return await _catalogue(request, "devices", desk_of(request).services.solver.devices)


@router.get("/models", operation_id="listModels", response_class=Response, responses=documented("Models", 200, 304))
async def list_models(request: Request) -> Response:
    """Model presets."""
    return await _catalogue(request, "models", desk_of(request).services.solver.models)


@router.get("/frameworks", operation_id="listFrameworks", response_class=Response, responses=documented("Frameworks", 200, 304))
async def list_frameworks(request: Request) -> Response:
    """Frameworks with the versions of their rule sets and what they can express."""
    return await _catalogue(request, "frameworks", desk_of(request).services.solver.frameworks)


async def _catalogue(request: Request, name: str, make: Callable[[], str]) -> Response:
    """Made once for each generation of the store, which costs little and needs no other rule."""
    desk = desk_of(request)
    key = Key("catalogue", name)
    kept = await desk.answers.find(key)
    if kept is None:
        generation = await desk.generation.now()
        body = (await to_thread.run_sync(make, limiter=desk.thinking)).encode()
        kept = Answer(body, etag_of(body))
        desk.answers.keep(key, kept, generation)
    return tagged_response(request, kept.body, kept.etag)
