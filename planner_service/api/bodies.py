"""Reads the JSON body of a request with the service's limits."""

from __future__ import annotations

import asyncio
from typing import Any

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request

from planner_service.api.desk import desk_of
from planner_service.body import parse_json, read_limited, require_object
from planner_service.problems import FieldProblem, Problem

CLOSE = {"Connection": "close"}


async def raw_body(request: Request) -> bytes:
    """The bytes of a JSON body; raises `Problem` 400, 408, 413 or 415."""
    settings = desk_of(request).services.settings
    _require_json(request)
    announced = request.headers.get("content-length", "")
    announced_bytes = int(announced) if announced.isascii() and announced.isdigit() and len(announced) < 20 else None
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            return await read_limited(request.stream(), settings.max_body_bytes, announced_bytes)
    except TimeoutError:
        detail = f"The body took more than {settings.body_timeout_s:g} s to arrive."
        raise Problem(408, "body_timeout", detail, headers=CLOSE) from None
    except ClientDisconnect:
        raise Problem(400, "malformed_json", "The connection ended before the body did.") from None


async def json_body(request: Request, *, infinities: bool = False) -> dict[str, Any]:
    """The body as a JSON object; raises `Problem` 400, 408, 413, 415 or 422. `infinities`: see `parse_json`."""
    desk = desk_of(request)
    raw = await raw_body(request)
    depth = desk.services.settings.max_body_depth
    return await to_thread.run_sync(json_object_of, raw, depth, infinities, limiter=desk.thinking)


def json_object_of(raw: bytes, max_depth: int, infinities: bool = False) -> dict[str, Any]:
    """The JSON object in these bytes."""
    return require_object(parse_json(raw, max_depth, infinities=infinities))


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
