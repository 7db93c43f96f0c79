"""Reads the JSON body of a request with the service's limits."""

from __future__ import annotations

import asyncio
from typing import Any

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request

from planner_service.body import parse_json, read_limited, require_object
from planner_service.problems import Problem
from planner_service.services import services_of


async def json_body(request: Request) -> dict[str, Any]:
    """The body as a JSON object; raises `Problem` 400, 408, 413, 415 or 422."""
    settings = services_of(request).settings
    _require_json(request)
    announced = request.headers.get("content-length", "")
    announced_bytes = int(announced) if announced.isascii() and announced.isdigit() and len(announced) < 20 else None
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            raw = await read_limited(request.stream(), settings.max_body_bytes, announced_bytes)
    except TimeoutError:
        raise Problem(
            408, "body_timeout", f"More than {settings.body_timeout_s:g} s passed.", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise Problem(400, "malformed_json", "The connection ended before the body did.") from None
    return require_object(await to_thread.run_sync(parse_json, raw, settings.max_body_depth))


def _require_json(request: Request) -> None:
    """415 unless the body is plain JSON in UTF-8."""
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    charset = parameters.replace(" ", "").replace('"', "").lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    json_media = media == "application/json" or (media.startswith("application/") and media.endswith("+json"))
    if (
        not json_media
        or encoding != "identity"
        or (charset.startswith("charset=") and charset not in ("charset=utf-8", "charset=utf8"))
    ):
        raise Problem(415, "unsupported_media_type", "Send application/json in UTF-8, without a content encoding.")
