"""POST /v1/imports/{kind}: a raw file in, the spec that was understood out."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.bodies import json_body
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response
from planner_service.services import services_of

router = APIRouter(prefix="/v1/imports", tags=["imports"])


@router.post(
    "/hf-config",
    operation_id="importHfConfig",
    response_class=Response,
    responses=documented(200, *BODY_ERRORS),
    openapi_extra=documented_body("The content of a Hugging Face config.json"),
)
async def import_hf_config(request: Request) -> Response:
    """The explicit sizes that a config.json means, with warnings."""
    config = await json_body(request)
    return json_response(await to_thread.run_sync(services_of(request).solver.import_hf_config, config))
