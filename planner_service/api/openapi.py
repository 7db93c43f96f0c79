"""The OpenAPI 3.1 document: the routes as FastAPI lists them, with our schemas and shared headers in place of its own."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from planner_service.api.schemas import COMPONENTS

PATH_EXAMPLES = {
    "search_id": "01JZ8QK3W4X5Y6Z7A8B9C0D1E2",
    "plan_id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "framework": "megatron-core",
    "name": "megatron-core",
}


def openapi_document(app: FastAPI, solver_components: dict[str, Any]) -> dict[str, Any]:
    """The whole document."""
    document = get_openapi(
        title=app.title, version=app.version, openapi_version="3.1.0", description=app.description, routes=app.routes
    )
    document["components"] = {"schemas": {**solver_components, **COMPONENTS}}
    for path in document["paths"].values():
        for operation in path.values():
            _tidy(operation)
    return document


def _tidy(operation: dict[str, Any]) -> None:
    """No generated titles; path parameters with an example."""
    for parameter in operation.get("parameters", ()):
        parameter.get("schema", {}).pop("title", None)
        if parameter["in"] == "path":
            parameter["example"] = PATH_EXAMPLES[parameter["name"]]
