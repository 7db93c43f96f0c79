"""The responses all routes share, and the headers that every answer carries."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from planner_service.api.schemas import reference
from planner_service.problems import MEDIA_TYPE, Problem

HEADERS = {"X-Content-Type-Options": "nosniff"}
JSON = "application/json"
REVALIDATE = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"
DESCRIPTIONS = {
    200: "Done",
    201: "Created",
    202: "Accepted",
    204: "Done, nothing to say",
    304: "Not modified",
    400: "Not JSON",
    404: "Not found",
    406: "None of the accepted media types is available",
    408: "The body did not arrive in time",
    409: "In conflict with what there is",
    410: "Was there once",
    413: "Body too large",
    415: "Not application/json",
    422: "Not valid",
    429: "Too many are waiting",
    500: "The service made an error",
    503: "The database or the search slots do not work",
}
BODY_ERRORS = (400, 408, 413, 415)
ALWAYS = (406, 422, 500, 503)
NO_CONTENT = (204, 304)


def tagged(etag: str, cache_control: str) -> dict[str, str]:
    """The headers of an answer with an ETag."""
    return {"Cache-Control": cache_control, **HEADERS, "ETag": etag}


def known_created(location: str) -> dict[str, str]:
    """The headers of a POST that was answered by a search that has ended."""
    return {"Cache-Control": "no-store", **HEADERS, "Location": location}


def json_response(content: bytes | str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that is already text."""
    merged = {"Cache-Control": "no-store", **HEADERS, **(headers or {})}
    return Response(content, status_code=status, media_type=JSON, headers=merged)


def problem_response(problem: Problem) -> Response:
    """A problem document."""
    headers = {"Cache-Control": "no-store", **HEADERS, **problem.headers}
    return Response(problem.text(), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def tagged_response(request: Request, content: bytes, etag: str | None = None, cache_control: str = REVALIDATE) -> Response:
    """JSON with an ETag (by default of its bytes), or 304 when the client has just that."""
    sent = tagged(etag or etag_of(content), cache_control)
    if matches(request.headers.getlist("if-none-match"), sent["ETag"]):
        return Response(status_code=304, headers=sent)
    return Response(content, media_type=JSON, headers=sent)


def etag_of(content: bytes) -> str:
    """A strong ETag of these bytes."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def matches(conditions: list[str], etag: str) -> bool:
    """If-None-Match (weak comparison)."""
    if not conditions:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in ",".join(conditions).split(",")]
    return "*" in tags or etag in tags


def not_found(what: str) -> Problem:
    """404 for something that does not exist."""
    return Problem(404, "not_found", f"There is no such {what}.")


def gone(what: str) -> Problem:
    """410 for something that was deleted or evicted."""
    return Problem(410, "gone", f"This {what} was deleted or evicted; send its problem again.")


def documented(answer: str | None, *statuses: int, media: str = JSON) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI: `answer` names the component of the good ones."""
    return {status: _documented(answer, status, media) for status in sorted({*statuses, *ALWAYS})}


def _documented(answer: str | None, status: int, media: str) -> dict[str, Any]:
    """One answer."""
    if status in NO_CONTENT:
        return {"description": DESCRIPTIONS[status]}
    if status >= 400:
        content = {MEDIA_TYPE: {"schema": reference("ErrorDocument")}}
    else:
        content = {media: {"schema": reference(answer) if answer else {"type": "string"}}}
    return {"description": DESCRIPTIONS[status], "content": content}


def documented_body(component: str, example: Any = None) -> dict[str, Any]:
    """The request body of a route for OpenAPI; it is parsed by `planner_service.body`, not by the framework."""
    content: dict[str, Any] = {"schema": reference(component)}
    if example is not None:
        content["example"] = example
    return {"requestBody": {"required": True, "content": {JSON: content}}}


def documented_header(name: str, description: str) -> dict[str, Any]:
    """An optional request header for OpenAPI."""
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": description}
