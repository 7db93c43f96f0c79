"""POST /v1/calibrations: measurements in, a profile usable by name out; GET /v1/profiles[/{name}]."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import orjson
from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.bodies import raw_body
from planner_service.api.desk import desk_of
from planner_service.api.examples import CALIBRATION
from planner_service.api.reader import document_job
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response, not_found, tagged_response
from planner_service.api.strict_route import StrictRoute
from planner_service.services import Services

router = APIRouter(prefix="/v1", tags=["profiles"], route_class=StrictRoute)


@router.post(
    "/calibrations",
    operation_id="createCalibration",
    response_class=Response,
    status_code=201,
    responses=documented("Profile", 201, 429, *BODY_ERRORS),
    openapi_extra=documented_body("CalibrationRequest", CALIBRATION),
)
async def create_calibration(request: Request) -> Response:
    """Refits a software profile to measured runs, link rates to nccl-tests outputs; replaces a profile of that name."""
    desk = desk_of(request)
    services = desk.services
    job = await document_job(desk, "calibrate", "request", await raw_body(request))
    body = str((await asyncio.wrap_future(services.evaluator.submit(job)))["profile"])
    name = str(orjson.loads(body)["name"])
    await to_thread.run_sync(services.profiles.put, name, body)
    return json_response(body, 201, {"Location": f"/v1/profiles/{quote(name, safe='')}"})


@router.get("/profiles", operation_id="listProfiles", response_class=Response, responses=documented("Profiles", 200, 304))
async def list_profiles(request: Request) -> Response:
    """All profiles: those that ship, then the calibrated ones."""
    desk = desk_of(request)
    return tagged_response(request, await to_thread.run_sync(_listed, desk.services, limiter=desk.thinking))


@router.get(
    "/profiles/{name}", operation_id="getProfile", response_class=Response, responses=documented("Profile", 200, 304, 404)
)
async def get_profile(request: Request, name: str) -> Response:
    """One profile: its constants with what set them, its error, the rates of devices it knows."""
    desk = desk_of(request)
    body = await to_thread.run_sync(_one, desk.services, name, limiter=desk.thinking)
    if body is None:
        raise not_found("profile")
    return tagged_response(request, body)


def _listed(services: Services) -> bytes:
    shipped = services.solver.profiles()
    calibrated = [orjson.loads(entry.document) for entry in services.profiles.all()]
    entries = [{"name": entry["name"], "base": None, "kind": "shipped"} for entry in shipped]
    entries += [{"name": entry["name"], "base": entry["base"], "kind": "calibrated"} for entry in calibrated]
    return orjson.dumps({"profiles": entries})


def _one(services: Services, name: str) -> bytes | None:
    stored = services.profiles.get(name)
    if stored is not None:
        return stored.document.encode()
    found = next((entry for entry in services.solver.profiles() if name in (entry["name"], *entry["aliases"])), None)
    return None if found is None else orjson.dumps(found)
