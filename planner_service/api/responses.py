"""The responses all routes share, and the headers that every answer carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from planner_service.problems import MEDIA_TYPE, Problem

HEADERS = {"X-Content-Type-Options": "nosniff"}
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "message", "allowed"],
                "properties": {
                    "pointer": {"type": "string"},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "allowed": {"type": ["array", "null"]},
                },
            },
        },
    },
}
DESCRIPTIONS = {
    200: "Done",
    202: "Accepted",
    304: "Not modified",
    400: "Not JSON",
    404: "Not found",
    405: "Method not allowed",
    408: "The body did not arrive in time",
    409: "Not expressible in the framework",
    413: "Body too large",
    415: "Not application/json",
    422: "Not valid",
    429: "Too many are waiting",
    503: "Not ready",
}
BODY_ERRORS = (400, 408, 413, 415, 422)


def json_response(content: bytes | str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that is already text."""
    merged = {"Cache-Control": "no-store", **HEADERS, **(headers or {})}
    return Response(content, status_code=status, media_type="application/json", headers=merged)


def problem_response(problem: Problem) -> Response:
    """A problem document."""
    headers = {"Cache-Control": "no-store", **HEADERS, **problem.headers}
    return Response(problem.text(), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def not_found(what: str) -> Problem:
    """404 for something that does not exist."""
    return Problem(404, "not_found", f"There is no such {what}.")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI."""
    made: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        good = status < 400
        schema = {"type": "object"} if good else PROBLEM_SCHEMA
        content = {} if status == 304 else {"content": {"application/json" if good else MEDIA_TYPE: {"schema": schema}}}
        made[status] = {"description": DESCRIPTIONS[status], **content}
    return made


def documented_body(description: str, *required: str) -> dict[str, Any]:
    """The request body of a route for OpenAPI; it is parsed by `planner_service.body`, not by the framework."""
    schema: dict[str, Any] = {"type": "object", "description": description}
    if required:
        schema["required"] = list(required)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
