"""GET /v1/plans/{id} and its exports: immutable, so the id is the ETag."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from planner_service.api.responses import HEADERS, documented, json_response, not_found
from planner_service.services import Services, services_of
from planner_service.store.identifiers import is_plan_id
from planner_service.store.records import StoredPlan

router = APIRouter(prefix="/v1/plans", tags=["plans"])
IMMUTABLE = "public, max-age=31536000, immutable"


@router.get("/{plan_id}", operation_id="getPlan", response_class=Response, responses=documented(200, 304, 404))
async def get_plan(request: Request, plan_id: str) -> Response:
    """A plan: layout, prediction, where it is expressible."""
    plan = await to_thread.run_sync(_find, services_of(request), plan_id)
    headers = {"ETag": f'"{plan.id}"', "Cache-Control": IMMUTABLE}
    if _matches(request.headers.getlist("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers={**HEADERS, **headers})
    return json_response(plan.body, headers=headers)


@router.get(
    "/{plan_id}/exports/{framework}",
    operation_id="exportPlan",
    response_class=Response,
    responses=documented(200, 404, 409, 422, 429),
)
async def export_plan(request: Request, plan_id: str, framework: str) -> Response:
    """The files and the command that run a plan in a framework; 409 names what the framework cannot express."""
    services = services_of(request)
    plan = await to_thread.run_sync(_find, services, plan_id)
    message = {"kind": "export", "plan": asdict(plan), "framework": framework}
    answer = await asyncio.wrap_future(services.evaluator.submit(message))
    return json_response(answer["export"])


def _find(services: Services, plan_id: str) -> StoredPlan:
    """The plan, or 404."""
    found = services.plans.get(plan_id) if is_plan_id(plan_id) else None
    if found is None:
        raise not_found("plan")
    return found


def _matches(conditions: list[str], etag: str) -> bool:
    """If-None-Match (weak comparison)."""
    tags = [tag.strip().removeprefix("W/") for tag in ",".join(conditions).split(",")]
    return "*" in tags or etag in tags
