"""GET /v1/devices, /v1/models, /v1/frameworks: what can be named in a problem."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.responses import documented, json_response
from planner_service.services import services_of

router = APIRouter(prefix="/v1", tags=["catalogue"])


@router.get("/devices", operation_id="listDevices", response_class=Response, responses=documented(200))
async def list_devices(request: Request) -> Response:
    """Devices with their aliases and figures."""
    return json_response(await to_thread.run_sync(services_of(request).solver.devices))


@router.get("/models", operation_id="listModels", response_class=Response, responses=documented(200))
async def list_models(request: Request) -> Response:
    """Model presets."""
    return json_response(await to_thread.run_sync(services_of(request).solver.models))


@router.get("/frameworks", operation_id="listFrameworks", response_class=Response, responses=documented(200))
async def list_frameworks(request: Request) -> Response:
    """Frameworks with the versions of their rule sets and what they can express."""
    return json_response(await to_thread.run_sync(services_of(request).solver.frameworks))
