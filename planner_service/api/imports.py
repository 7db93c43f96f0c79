"""POST /v1/imports/{kind}: a raw file in, the spec that was understood out."""

from __future__ import annotations

import asyncio

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.bodies import raw_body
from planner_service.api.desk import desk_of
from planner_service.api.examples import HF_CONFIG
from planner_service.api.reader import document_job
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response
from planner_service.api.strict_route import StrictRoute

router = APIRouter(prefix="/v1/imports", tags=["imports"], route_class=StrictRoute)


@router.post(
    "/hf-config",
    operation_id="importHfConfig",
    response_class=Response,
    responses=documented("ImportedModel", 200, 429, *BODY_ERRORS),
    openapi_extra=documented_body("HfConfig", HF_CONFIG),
)
async def import_hf_config(request: Request) -> Response:
    """The explicit sizes that a config.json means, its parameters by part, and warnings."""
    desk = desk_of(request)
    job = await document_job(desk, "import_hf_config", "config", await raw_body(request), infinities=True)
    if "config" in job:
        made = await to_thread.run_sync(desk.services.solver.import_hf_config, job["config"], limiter=desk.thinking)
    else:
        made = (await asyncio.wrap_future(desk.reader.submit(job)))["import"]
    return json_response(made)
