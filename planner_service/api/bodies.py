"""Reads the JSON body of a request with the service's limits."""

from __future__ import annotations

import asyncio
from typing import Any

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request

from planner_service.api.desk import desk_of
from planner_service.body import read_limited
from planner_service.problems import FieldProblem, Problem
from planner_service.reading import json_object_of

CLOSE = {"Connection": "close"}
SMALL_BODY_BYTES = 2**14
"""Reading so much takes the interpreter for a few milliseconds at most."""


async def raw_body(request: Request, most_bytes: int | None = None) -> bytes:
    """The bytes of a JSON body; raises `Problem` 400, 408, 413 or 415."""
    _require_json(request)
    return await any_body(request, most_bytes)


async def any_body(request: Request, most_bytes: int | None = None) -> bytes:
    """The bytes of a body of any media type; raises `Problem` 400, 408, 413 or 415."""
    settings = desk_of(request).services.settings
    most_bytes = settings.max_body_bytes if most_bytes is None else min(most_bytes, settings.max_body_bytes)
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        _unsupported("content-encoding", "Send the body as it is, without a content encoding.", "identity")
    announced = request.headers.get("content-length", "")
    announced_bytes = int(announced) if announced.isascii() and announced.isdigit() and len(announced) < 20 else None
    waits = request.headers.get("expect", "").lower() == "100-continue"
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            return await read_limited(request.stream(), most_bytes, announced_bytes, waits)
    except TimeoutError:
        detail = f"The body took more than {settings.body_timeout_s:g} s to arrive."
        raise Problem(408, "body_timeout", detail, headers=CLOSE) from None
    except ClientDisconnect:
        raise Problem(400, "malformed_json", "The connection ended before the body did.") from None


async def json_body(request: Request) -> dict[str, Any]:
    """A small body as a JSON object; raises `Problem` 400, 408, 413, 415 or 422."""
    desk = desk_of(request)
    raw = await raw_body(request, SMALL_BODY_BYTES)
    return await to_thread.run_sync(json_object_of, raw, desk.services.settings.max_body_depth, limiter=desk.thinking)


def _require_json(request: Request) -> None:
    """415 unless the body is plain JSON in UTF-8."""
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    charset = parameters.replace(" ", "").replace('"', "").lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    json_media = media == "application/json" or (media.startswith("application/") and media.endswith("+json"))
    if encoding != "identity":
        _unsupported("content-encoding", "Send the body as it is, without a content encoding.", "identity")
    if not json_media:
        _unsupported("content-type", "Send JSON, and say so in Content-Type.", "application/json")
    if charset.startswith("charset=") and charset not in ("charset=utf-8", "charset=utf8"):
        _unsupported("content-type", "JSON is in UTF-8.", "application/json; charset=utf-8")


def _unsupported(header: str, message: str, allowed: str) -> None:
    """415 that names the header."""
    error = FieldProblem(f"/header/{header}", "unsupported_media_type", message, (allowed,))
    raise Problem(415, "unsupported_media_type", message, [error])
