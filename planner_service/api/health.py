"""GET /healthz (the process answers) and /readyz (it can also do its work)."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from planner_service.api.responses import documented, json_response
from planner_service.problems import Problem
from planner_service.services import Services, services_of
from planner_service.store.migrate import current_revision, head_revision

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="health", response_class=Response, responses=documented(200))
async def health() -> Response:
    """The process is alive."""
    return json_response('{"status":"ok"}')


@router.get("/readyz", operation_id="ready", response_class=Response, responses=documented(200, 503))
async def ready(request: Request) -> Response:
    """The database answers with the newest schema, and the search slots work."""
    await to_thread.run_sync(_check, services_of(request))
    return json_response('{"status":"ready"}')


def _check(services: Services) -> None:
    """503 that names what is wrong."""
    try:
        revision = current_revision(services.engine)
    except SQLAlchemyError as error:
        raise Problem(503, "unavailable", "The database does not answer.") from error
    if revision != head_revision():
        raise Problem(503, "unavailable", "The database has another schema than this server.")
    if not services.runner.alive():
        raise Problem(503, "unavailable", "A search slot has ended.")
