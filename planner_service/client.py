"""A client of the HTTP interface; refusals come back as the `Problem` the server sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx
import orjson

from planner_service.problems import Problem, problem_from

TERMINAL_STATES = ("done", "failed", "cancelled")


class ServiceUnreachable(Exception):
    """The server did not answer, or not in this interface."""


class PlannerClient:
    """Calls one server; every method returns the bytes of the answer."""

    def __init__(self, base_url: str, timeout_s: float = 90.0) -> None:
        self._http = httpx.Client(base_url=base_url.rstrip("/"), timeout=timeout_s, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def create_search(self, problem: dict[str, Any], wait_s: float | None = None, label: str | None = None) -> bytes:
        """POST /v1/searches."""
        headers = {} if wait_s is None else {"Prefer": f"wait={wait_s:.0f}"}
        query = "" if label is None else f"?label={quote(label, safe='')}"
        return self._post(f"/v1/searches{query}", problem, headers)

    def searches(self, **filters: str | int) -> bytes:
        """GET /v1/searches."""
        return self._call("GET", "/v1/searches", params=filters)

    def search(self, search_id: str) -> bytes:
        """GET /v1/searches/{id}."""
        return self._get(f"/v1/searches/{search_id}")

    def follow(self, first: bytes, on_update: Callable[[dict[str, Any]], None], poll_s: float = 0.5) -> bytes:
        """The document of a search once it has ended, every state on the way told to `on_update`."""
        current = first
        while True:
            document = orjson.loads(current)
            on_update(document)
            if document["state"] in TERMINAL_STATES:
                return current
            time.sleep(poll_s)
            current = self.search(document["id"])

    def events(self, search_id: str, after: int = 0) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """GET /v1/searches/{id}/events: (number, kind, data) of each after number `after`; the last is `done`."""
        headers = {"Last-Event-ID": str(after)}
        try:
            with self._http.stream("GET", f"/v1/searches/{search_id}/events", headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response)
                yield from _events(response.iter_lines())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error

    def edit(self, search_id: str, **changes: str | list[str] | None) -> bytes:
        """PATCH /v1/searches/{id}."""
        return self._call("PATCH", f"/v1/searches/{search_id}", json=changes)

    def delete(self, search_id: str) -> None:
        """DELETE /v1/searches/{id}."""
        self._call("DELETE", f"/v1/searches/{search_id}")

    def cancel(self, search_id: str) -> bytes:
        """POST /v1/searches/{id}:cancel."""
        return self._call("POST", f"/v1/searches/{search_id}:cancel")

    def evaluate(self, problem: dict[str, Any], layout: dict[str, Any]) -> bytes:
        """POST /v1/evaluations."""
        return self._post("/v1/evaluations", {"problem": problem, "layout": layout})

    def plan(self, plan_id: str) -> bytes:
        """GET /v1/plans/{id}."""
        return self._get(f"/v1/plans/{plan_id}")

    def timeline(self, plan_id: str, scenario: int = 0) -> bytes:
        """GET /v1/plans/{id}/timeline."""
        return self._call("GET", f"/v1/plans/{plan_id}/timeline", params={"scenario": scenario})

    def compare(self, plan_ids: list[str]) -> bytes:
        """POST /v1/comparisons."""
        return self._post("/v1/comparisons", {"plans": plan_ids})

    def export(self, plan_id: str, framework: str) -> bytes:
        """GET /v1/plans/{id}/exports/{framework}."""
        return self._get(f"/v1/plans/{plan_id}/exports/{framework}")

    def import_hf_config(self, config: dict[str, Any]) -> bytes:
        """POST /v1/imports/hf-config."""
        return self._post("/v1/imports/hf-config", config)

    def devices(self) -> bytes:
        """GET /v1/devices."""
        return self._get("/v1/devices")

    def import_lengths(
        self, name: str, stream: BinaryIO, column: str | None, max_tokens: int | None, characters_per_token: float | None
    ) -> bytes:
        """POST /v1/imports/lengths."""
        asked = {"name": name, "column": column, "max": max_tokens, "characters_per_token": characters_per_token}
        given = {key: value for key, value in asked.items() if value is not None}
        headers = {"Content-Type": "application/octet-stream"}
        return self._call("POST", "/v1/imports/lengths", params=given, content=stream.read(), headers=headers)

    def ready(self) -> bool:
        """GET /readyz."""
        try:
            self._get("/readyz")
        except (Problem, ServiceUnreachable):
            return False
        return True

    def _get(self, path: str) -> bytes:
        return self._call("GET", path)

    def _post(self, path: str, document: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
        content = orjson.dumps(document)
        return self._call("POST", path, content=content, headers={"Content-Type": "application/json", **(headers or {})})

    def _call(self, method: str, path: str, **arguments: Any) -> bytes:
        try:
            response = self._http.request(method, path, **arguments)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        if response.is_success:
            return response.content
        raise self._refusal(response)

    def _unreachable(self, error: Exception) -> ServiceUnreachable:
        return ServiceUnreachable(f"{self._http.base_url}: {error or type(error).__name__}")

    def _refusal(self, response: httpx.Response) -> Exception:
        """The problem that the server sent, if it is one."""
        try:
            document = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict) or "code" not in document:
            return ServiceUnreachable(f"{self._http.base_url}: unexpected answer {response.status_code}")
        return problem_from(document)


def _events(lines: Iterable[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The events in a stream of lines; comments and hints are left out."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield int(fields.get("id", 0)), fields.get("event", "message"), orjson.loads(fields["data"])
            fields = {}
        else:
            fields = {}
