"""The HTTP application: routes, error handlers and the life of the services behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import FastAPI

from planner_service.api import (
    calibrations,
    catalog,
    comparisons,
    evaluations,
    health,
    imports,
    length_imports,
    plans,
    search_events,
    search_list,
    searches,
)
from planner_service.api.desk import open_desk
from planner_service.api.front import Front
from planner_service.api.metrics import Metrics
from planner_service.api.openapi import openapi_document
from planner_service.api.openapi_route import openapi_router
from planner_service.api.refusals import Refusals
from planner_service.api.shortcut import Shortcut
from planner_service.services import start_services, stop_services
from planner_service.settings import Settings
from planner_service.solver_port import DEFAULT_SOLVER, load_solver

DESCRIPTION = "Searches hybrid parallel training layouts exactly; answers with a plan, its proof and its launch configuration."
MODULES = (
    plans,
    searches,
    search_list,
    search_events,
    evaluations,
    comparisons,
    imports,
    length_imports,
    catalog,
    calibrations,
    health,
)
"""those asked most often first: routes are tried in this order"""


def create_app(settings: Settings | None = None, solver_name: str = DEFAULT_SOLVER) -> FastAPI:
    """An application; the database is opened and the search slots start when it does."""
    known = settings or Settings()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = await to_thread.run_sync(start_services, known, solver_name)
        app.state.desk = open_desk(app.state.services, metrics, solver_name)
        try:
            yield
        finally:
            app.state.desk.delay.stop()
            await to_thread.run_sync(app.state.desk.close)
            await to_thread.run_sync(stop_services, app.state.services)

    app = FastAPI(
        title="Parallel plan service",
        description=DESCRIPTION,
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,
        openapi_url=None,
        redirect_slashes=False,
        redoc_url=None,
    )

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi_document(app, load_solver(solver_name).schemas())
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
    routers = (*(module.router for module in MODULES), openapi_router(document))
    for router in routers:
        app.router.routes.extend(router.routes)
    for kind, handler in Refusals(routers).handlers().items():
        app.add_exception_handler(kind, handler)
    app.add_middleware(Shortcut)
    app.add_middleware(Front, metrics=metrics)
    return app
