"""POST /v1/evaluations: is this layout legal, does it fit, how fast is it?"""

from __future__ import annotations

import asyncio

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.bodies import raw_body
from planner_service.api.desk import desk_of
from planner_service.api.examples import EVALUATION
from planner_service.api.reader import evaluation_job
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response
from planner_service.api.strict_route import StrictRoute
from planner_service.jobs.child_messages import evaluation_answer

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"], route_class=StrictRoute)


@router.post(
    "",
    operation_id="createEvaluation",
    response_class=Response,
    responses=documented("Evaluation", 200, 429, *BODY_ERRORS),
    openapi_extra=documented_body("EvaluationRequest", EVALUATION),
)
async def create_evaluation(request: Request) -> Response:
    """Judges one layout, in full or in classical words; its plan is stored."""
    desk = desk_of(request)
    services = desk.services
    job = await evaluation_job(desk, await raw_body(request))
    answer = evaluation_answer(await asyncio.wrap_future(services.evaluator.submit(job)))
    if answer.plan is not None:
        await to_thread.run_sync(services.plans.put, [answer.plan])
    return json_response(answer.evaluation)
