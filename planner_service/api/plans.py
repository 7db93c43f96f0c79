"""GET /v1/plans/{id}, its exports and its timeline: immutable, so the id is the ETag."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from planner_service.api.answers import Answer, Key
from planner_service.api.desk import Desk, desk_of
from planner_service.api.finding import find_plan
from planner_service.api.responses import IMMUTABLE, documented, json_response, tagged_response
from planner_service.api.strict_route import StrictRoute

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)


@router.get("/{plan_id}", operation_id="getPlan", response_class=Response, responses=documented("Plan", 200, 304, 404, 410))
async def get_plan(request: Request, plan_id: str) -> Response:
    """A plan: layout, prediction, where it is expressible."""
    desk = desk_of(request)
    key = Key("plan", plan_id)
    kept = await desk.answers.find(key)
    desk.metrics.looked_up(kept is not None)
    if kept is None:
        kept = await to_thread.run_sync(_read, desk, key)
    return tagged_response(request, kept.body, kept.etag, IMMUTABLE)


@router.get(
    "/{plan_id}/exports/{framework}",
    operation_id="exportPlan",
    response_class=Response,
    responses=documented("Export", 200, 404, 409, 410, 429),
)
async def export_plan(request: Request, plan_id: str, framework: str) -> Response:
    """The files and the command that run a plan in a framework; 409 names what the framework cannot express."""
    services = desk_of(request).services
    plan = await to_thread.run_sync(find_plan, services, plan_id)
    message = {"kind": "export", "plan": asdict(plan), "framework": framework}
    answer = await asyncio.wrap_future(services.evaluator.submit(message))
    return json_response(answer["export"])


@router.get(
    "/{plan_id}/timeline",
    operation_id="getTimeline",
    response_class=Response,
    responses=documented("Timeline", 200, 404, 410, 429),
)
async def get_timeline(request: Request, plan_id: str, scenario: Annotated[int, Query(ge=0, le=10_000)] = 0) -> Response:
    """Every operation of one step as the simulator runs it, of the replica that ends last in each chain of stages."""
    services = desk_of(request).services
    plan = await to_thread.run_sync(find_plan, services, plan_id)
    message = {"kind": "timeline", "plan": asdict(plan), "scenario": scenario}
    answer = await asyncio.wrap_future(services.evaluator.submit(message))
    return json_response(answer["timeline"])


def _read(desk: Desk, key: Key) -> Answer:
    """The plan, kept in memory."""
    generation = desk.services.searches.generation()
    plan = find_plan(desk.services, str(key.identity))
    answer = Answer(plan.body.encode(), f'"{plan.id}"')
    desk.answers.keep(key, answer, generation)
    return answer
