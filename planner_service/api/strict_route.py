"""Routes that refuse what they do not know: query parameters, repeated or unprintable ones, and an Accept they cannot meet."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from planner_service.problems import MEDIA_TYPE, FieldProblem, Problem

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """An `APIRoute` that checks query and Accept header before its handler runs."""

    def get_route_handler(self) -> Handler:
        """The handler behind the two checks."""
        handle = super().get_route_handler()
        known = tuple(sorted(str(field.alias) for field in self.dependant.query_params))
        offered = offered_media(self.responses)

        async def checked(request: Request) -> Response:
            if request.scope["query_string"]:
                refuse_unknown_parameters(request, known)
            require_acceptable(request.headers.getlist("accept"), offered)
            return await handle(request)

        return checked


def offered_media(responses: dict[int | str, dict[str, Any]]) -> tuple[str, ...]:
    """The media types of the documented answers that are no refusals."""
    good = [answer.get("content", {}) for status, answer in responses.items() if int(status) < 300]
    return tuple(sorted({media for content in good for media in content}))


def refuse_unknown_parameters(request: Request, known: tuple[str, ...]) -> None:
    """422 with the nearest known name for each parameter that this route does not have; values are not echoed."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    errors = [_unknown(name, known) for name in counts if name not in known]
    errors += [
        FieldProblem(f"/query/{name}", "duplicate_parameter", "Give this parameter once.")
        for name, count in counts.items()
        if name in known and count > 1
    ]
    errors += [
        FieldProblem(f"/query/{name}", "invalid", "The value holds a NUL or other control character.")
        for name, value in request.query_params.items()
        if name in known and any(ord(char) < 32 or ord(char) == 127 for char in value)
    ]
    if errors:
        raise Problem(422, "invalid_parameter", f"{errors[0].pointer}: {errors[0].message}", errors)


def _unknown(name: str, known: tuple[str, ...]) -> FieldProblem:
    """What to say about a parameter that is not known here."""
    place = f"/query/{name.replace('~', '~0').replace('/', '~1')}"
    if not known:
        return FieldProblem(place, "unknown_parameter", "This call takes no query parameters.", ())
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return FieldProblem(place, "unknown_parameter", f"There is no such query parameter.{hint}", known)


def require_acceptable(accept: list[str], offered: tuple[str, ...]) -> None:
    """406 when the client takes none of the media types this route can answer with (RFC 9110 12.5.1)."""
    if not accept or not offered:
        return
    ranges = [part.strip() for part in ",".join(accept).split(",") if part.strip()]
    if not ranges or any(_takes(part, media) for part in ranges for media in (*offered, MEDIA_TYPE)):
        return
    error = FieldProblem("/header/accept", "not_acceptable", "None of the accepted media types is available.", offered)
    raise Problem(406, "not_acceptable", f"This call answers with {', '.join(offered)}.", [error])


def _takes(media_range: str, media: str) -> bool:
    """Whether one range of an Accept header covers a media type with a weight above zero."""
    name, *parameters = (part.strip().lower() for part in media_range.split(";"))
    if any(parameter.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters):
        return False
    return name in ("*/*", media, media.split("/")[0] + "/*")
