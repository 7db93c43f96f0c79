"""POST /v1/comparisons: how two to six plans differ, and why the slower ones are slower."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.bodies import json_body
from planner_service.api.desk import desk_of
from planner_service.api.examples import COMPARISON
from planner_service.api.finding import find_plan
from planner_service.api.responses import BODY_ERRORS, documented, documented_body, json_response
from planner_service.api.strict_route import StrictRoute
from planner_service.body import require_members
from planner_service.comparison import compare_plans
from planner_service.problems import FieldProblem, Problem
from planner_service.services import Services

router = APIRouter(prefix="/v1/comparisons", tags=["comparisons"], route_class=StrictRoute)
LEAST, MOST = 2, 6


@router.post(
    "",
    operation_id="comparePlans",
    response_class=Response,
    responses=documented("Comparison", 200, *BODY_ERRORS),
    openapi_extra=documented_body("ComparisonRequest", COMPARISON),
)
async def compare(request: Request) -> Response:
    """Each plan against the fastest of them; plans that are not known are 422 with their pointer."""
    document = await json_body(request)
    require_members(document, ("plans",))
    return json_response(await to_thread.run_sync(_compared, desk_of(request).services, document["plans"]))


def _compared(services: Services, plan_ids: Any) -> str:
    """Reads the plans and compares them."""
    allowed = (f"{LEAST} to {MOST} different plan ids",)
    if not isinstance(plan_ids, list) or not all(isinstance(item, str) for item in plan_ids):
        _refuse(FieldProblem("/plans", "wrong_type", "This must be a list of plan ids.", allowed))
    if not LEAST <= len(plan_ids) <= MOST or len(set(plan_ids)) < len(plan_ids):
        _refuse(FieldProblem("/plans", "out_of_range", f"{len(plan_ids)} ids, {len(set(plan_ids))} of them different.", allowed))
    found = []
    for index, plan_id in enumerate(plan_ids):
        try:
            found.append(find_plan(services, plan_id))
        except Problem as problem:
            _refuse(FieldProblem(f"/plans/{index}", problem.code, problem.detail))
    return compare_plans(found)


def _refuse(error: FieldProblem) -> None:
    raise Problem(422, "invalid_document", f"{error.pointer}: {error.message}", [error])
