"""POST /v1/imports/lengths: a raw file of sequence lengths in, the `sequence_lengths` of a problem out, and what they are like.

The file is the body, of any media type; it is read in the child process for large documents and dropped. Of text only the number
of characters is used, and only when the client says how many make a token.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import asdict
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from planner_service.api.bodies import any_body
from planner_service.api.desk import desk_of
from planner_service.api.responses import BODY_ERRORS, documented, json_response
from planner_service.api.strict_route import StrictRoute
from planner_service.solver_port import LengthWish

router = APIRouter(prefix="/v1/imports", tags=["imports"], route_class=StrictRoute)

#: A gzipped body may unpack to this many times the largest body.
UNPACKED_BODIES = 8
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/lengths",
    operation_id="importLengths",
    response_class=Response,
    responses=documented("ImportedLengths", 200, 429, *BODY_ERRORS),
    openapi_extra=BODY,
)
async def import_lengths(
    request: Request,
    name: Annotated[str, Query(max_length=255, description="Name of the file; only its ending is used")] = "",
    column: Annotated[str | None, Query(max_length=255, description="Column or member to read")] = None,
    max_tokens: Annotated[int | None, Query(alias="max", ge=1, le=1 << 30, description="Longest sequence of the model")] = None,
    characters_per_token: Annotated[float | None, Query(gt=0, le=1000, description="Measure of text without a tokenizer")] = None,
) -> Response:
    """The lengths in a Megatron index, Parquet, JSON Lines, JSON, NumPy, CSV or plain file; text formats may be gzipped."""
    desk = desk_of(request)
    raw = await any_body(request)
    unpacked_bytes = UNPACKED_BODIES * desk.services.settings.max_body_bytes
    wish = LengthWish(column, max_tokens, characters_per_token, unpacked_bytes)
    file = (await to_thread.run_sync(base64.b64encode, raw)).decode()
    job = {"kind": "import_lengths", "name": name, "file": file, "wish": asdict(wish)}
    return json_response((await asyncio.wrap_future(desk.reader.submit(job)))["import"])
