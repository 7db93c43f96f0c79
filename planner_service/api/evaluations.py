"""POST /v1/evaluations: is this layout legal, does it fit, how fast is it?"""

from __future__ import annotations

import asyncio

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.bodies import json_body
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response
from planner_service.body import require_members, require_object
from planner_service.jobs.child_messages import evaluation_answer
from planner_service.services import services_of

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"])
BODY = "`{problem, layout}`; the layout in full or in classical words (tp, pp, dp, ...)"


@router.post(
    "",
    operation_id="createEvaluation",
    response_class=Response,
    responses=documented(200, 429, *BODY_ERRORS),
    openapi_extra=documented_body(BODY, "problem", "layout"),
)
async def create_evaluation(request: Request) -> Response:
    """Judges one layout; its plan is stored."""
    services = services_of(request)
    document = await json_body(request)
    require_members(document, ("problem", "layout"))
    problem, layout = require_object(document["problem"], "/problem"), require_object(document["layout"], "/layout")
    message = {"kind": "evaluate", "problem": problem, "layout": layout}
    answer = evaluation_answer(await asyncio.wrap_future(services.evaluator.submit(message)))
    if answer.plan is not None:
        await to_thread.run_sync(services.plans.put, [answer.plan])
    return json_response(answer.evaluation)
