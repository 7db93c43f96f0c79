"""The HTTP application: routes, error handlers and the life of the services behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from planner_service.api import catalog, evaluations, health, imports, plans, searches
from planner_service.api.responses import problem_response
from planner_service.problems import FieldProblem, Problem, pointer
from planner_service.services import start_services, stop_services
from planner_service.settings import Settings
from planner_service.solver_port import DEFAULT_SOLVER

DESCRIPTION = "Searches hybrid parallel training layouts exactly; answers with a plan, its proof and its launch configuration."
ROUTERS = tuple(module.router for module in (searches, evaluations, plans, imports, catalog, health))
CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}


def create_app(settings: Settings | None = None, solver_name: str = DEFAULT_SOLVER) -> FastAPI:
    """An application; the database is opened and the search slots start when it does."""
    known = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = await to_thread.run_sync(start_services, known, solver_name)
        try:
            yield
        finally:
            await to_thread.run_sync(stop_services, app.state.services)

    app = FastAPI(
        title="Parallel plan service",
        description=DESCRIPTION,
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,
        redirect_slashes=False,
        redoc_url=None,
    )
    for router in ROUTERS:
        app.include_router(router)
    handlers: dict[Any, Any] = {
        Problem: _problem,
        RequestValidationError: _validation,
        HTTPException: _http,
        Exception: _internal,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    return app


async def _problem(_: Request, problem: Problem) -> Response:
    return problem_response(problem)


async def _validation(_: Request, error: RequestValidationError) -> Response:
    """Query parameters that are wrong; the input is not echoed."""
    errors = [FieldProblem(pointer(map(str, item["loc"])), "invalid", item["msg"]) for item in error.errors()]
    return problem_response(Problem(422, "invalid_parameter", "A query parameter is not valid.", errors))


async def _http(request: Request, error: HTTPException) -> Response:
    """What the router itself refuses; 405 lists every method the address knows."""
    headers = {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
    code = CODES.get(error.status_code, "invalid_document" if error.status_code < 500 else "internal_error")
    return problem_response(Problem(error.status_code, code, "", headers=headers))


async def _internal(_: Request, __: Exception) -> Response:
    """Our own mistakes: logged by the server, not explained to the client."""
    return problem_response(Problem(500, "internal_error", "The error was logged."))


def _methods(request: Request) -> list[str]:
    """The methods of all routes that match the path."""
    found: set[str] = set()
    for route in (route for router in ROUTERS for route in router.routes):
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)
