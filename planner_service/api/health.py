"""GET /healthz (the process answers), /readyz (it can also do its work), /metrics."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from planner_service.api.desk import Desk, desk_of
from planner_service.api.metrics import MEDIA_TYPE
from planner_service.api.responses import HEADERS, documented, json_response
from planner_service.api.strict_route import StrictRoute
from planner_service.problems import Problem
from planner_service.services import Services
from planner_service.store.migrate import current_revision, head_revision

router = APIRouter(tags=["health"], route_class=StrictRoute)
RETRY = {"Retry-After": "5"}


@router.get("/healthz", operation_id="health", response_class=Response, responses=documented("Status", 200))
async def health() -> Response:
    """The process is alive."""
    return json_response('{"status":"ok"}')


@router.get("/readyz", operation_id="ready", response_class=Response, responses=documented("Status", 200, 503))
async def ready(request: Request) -> Response:
    """The database answers with the newest schema, and the search slots work."""
    await to_thread.run_sync(_check, desk_of(request).services)
    return json_response('{"status":"ready"}')


@router.get("/metrics", operation_id="metrics", response_class=Response, responses=documented(None, 200, 503, media="text/plain"))
async def metrics(request: Request) -> Response:
    """What this server counts, in the text format of Prometheus."""
    text = await to_thread.run_sync(_metrics, desk_of(request))
    return Response(text, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", **HEADERS})


def _metrics(desk: Desk) -> bytes:
    """Counters of this process and states of the store."""
    try:
        states = desk.services.searches.counts()
    except SQLAlchemyError as error:
        raise Problem(503, "unavailable", "The database does not answer.", headers=RETRY) from error
    return desk.metrics.text((state.value, count) for state, count in states.items())


def _check(services: Services) -> None:
    """503 that names what is wrong."""
    try:
        revision = current_revision(services.engine)
    except SQLAlchemyError as error:
        raise Problem(503, "unavailable", "The database does not answer.", headers=RETRY) from error
    if revision != head_revision():
        raise Problem(503, "unavailable", "The database has another schema than this server.", headers=RETRY)
    if not services.runner.alive():
        raise Problem(503, "unavailable", "A search slot has ended.", headers=RETRY)
