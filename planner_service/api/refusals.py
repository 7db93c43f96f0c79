"""What the framework itself refuses (no route, wrong method, wrong parameter), as problem documents that help."""

from __future__ import annotations

import difflib
import enum
import logging
import secrets
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AwareDatetime
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from planner_service.api.responses import HEADERS, problem_response
from planner_service.problems import FieldProblem, Problem

LOG = logging.getLogger("planner.api")
DATABASE_TROUBLE = (OperationalError, InterfaceError, PoolTimeout)
"""what both databases raise when they are away, locked, out of space or out of connections"""
RETRY = {"Retry-After": "5"}
MOMENT = "2026-01-31T12:00:00Z"
CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}


class Refusals:
    """The exception handlers of an application with these routers."""

    def __init__(self, routers: tuple[APIRouter, ...]) -> None:
        self._routes = tuple(route for router in routers for route in router.routes if isinstance(route, APIRoute))

    def handlers(self) -> dict[Any, Any]:
        """By the exception they answer."""
        return {
            Problem: self.problem,
            RequestValidationError: self.validation,
            HTTPException: self.http,
            Exception: self.internal,
            **dict.fromkeys(DATABASE_TROUBLE, self.unavailable),
        }

    async def problem(self, _: Request, problem: Problem) -> Response:
        """A refusal of ours."""
        return problem_response(problem)

    async def validation(self, request: Request, error: RequestValidationError) -> Response:
        """Parameters that are wrong; what was sent is not echoed."""
        route = request.scope.get("route")
        errors = [_parameter(route, item) for item in error.errors()]
        detail = f"{errors[0].pointer}: {errors[0].message}"
        return problem_response(Problem(422, "invalid_parameter", detail, errors))

    async def http(self, request: Request, error: HTTPException) -> Response:
        """404 names the nearest addresses, 405 (and OPTIONS) every method of this one."""
        if error.status_code == 404:
            return problem_response(self._no_route(request))
        if error.status_code != 405:
            code = CODES.get(error.status_code, "invalid_document" if error.status_code < 500 else "internal_error")
            return problem_response(Problem(error.status_code, code, str(error.detail), headers=error.headers))
        methods = self._methods(request)
        allow = {"Allow": ", ".join(methods)}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={**HEADERS, **allow})
        finding = FieldProblem("", "method_not_allowed", "Another method is needed here.", methods)
        detail = f"This address takes {', '.join(methods)}."
        return problem_response(Problem(405, "method_not_allowed", detail, [finding], headers=allow))

    async def unavailable(self, request: Request, error: Exception) -> Response:
        """The database does not work now; the operator reads why in the log, the client comes again."""
        LOG.error("%s %s: the database does not work: %s", request.method, request.url.path[:200], str(error).splitlines()[0])
        detail = "The database cannot do this now; the same request may work again."
        return problem_response(Problem(503, "unavailable", detail, headers=RETRY))

    async def internal(self, request: Request, error: Exception) -> Response:
        """Our own mistakes: logged under the number the client gets, not explained to the client."""
        request_id = secrets.token_hex(8)
        LOG.error("request %s: %s %s failed", request_id, request.method, request.url.path[:200], exc_info=error)
        detail = f"The service made an error and logged it as {request_id}; the same request may work again."
        return problem_response(Problem(500, "internal_error", detail, extra={"request_id": request_id}))

    def _methods(self, request: Request) -> tuple[str, ...]:
        """The methods of all routes that match the path."""
        found = {method for route in self._matching(request) for method in route.methods}
        return tuple(sorted(found | {"OPTIONS"} | ({"HEAD"} if "GET" in found else set())))

    def _matching(self, request: Request) -> Iterator[APIRoute]:
        for route in self._routes:
            match, _ = route.matches(request.scope)
            if match is not Match.NONE:
                yield route

    def _no_route(self, request: Request) -> Problem:
        """404 for an address without a route."""
        paths = sorted({route.path for route in self._routes})
        near = difflib.get_close_matches(request.url.path[:200], paths, n=3, cutoff=0.5)
        finding = FieldProblem("", "unknown_path", "There is nothing at this address.", tuple(near or paths))
        hint = f" Near it: {', '.join(near)}." if near else " /openapi.json lists what there is."
        return Problem(404, "not_found", f"There is nothing at this address.{hint}", [finding])


def _parameter(route: Any, item: dict[str, Any]) -> FieldProblem:
    """One wrong parameter, with what it may be."""
    place, name = str(item["loc"][0]), str(item["loc"][-1])
    return FieldProblem(f"/{place}/{name}", "invalid", str(item["msg"]), _allowed(route, name))


def _allowed(route: Any, name: str) -> tuple[Any, ...] | None:
    """The values of an enumeration, or the ends of a range, as the route declares them."""
    for field in route.dependant.query_params if isinstance(route, APIRoute) else ():
        if field.alias == name:
            return _values(field.field_info)
    return None


def _values(info: Any) -> tuple[Any, ...] | None:
    """What a declared parameter takes."""
    for kind in (info.annotation, *getattr(info.annotation, "__args__", ())):
        if isinstance(kind, enum.EnumMeta):
            return tuple(str(member.value) for member in kind)
        if kind is AwareDatetime:
            return (MOMENT,)
    patterns = [entry.pattern for entry in info.metadata if getattr(entry, "pattern", None)]
    if patterns:
        return tuple(patterns)
    low = next((entry.ge for entry in info.metadata if hasattr(entry, "ge")), None)
    high = next((entry.le for entry in info.metadata if hasattr(entry, "le")), None)
    return None if low is None and high is None else (f"{low} to {high}",)
