"""Queries, Accept headers, methods and addresses: what is not known is refused with what is near it."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from planner_service.api.strict_route import require_acceptable
from planner_service.problems import Problem
from tests.service.test_hostile_input import check_problem

WAIT = {"Prefer": "wait=20"}


@pytest.mark.parametrize(
    ("path", "pointer", "code", "said"),
    [
        ("/v1/searches?stat=done", "/query/stat", "unknown_parameter", "state"),
        ("/v1/devices?limit=3", "/query/limit", "unknown_parameter", "no query"),
        ("/healthz?x=", "/query/x", "unknown_parameter", "no query"),
        ("/openapi.json?x=1", "/query/x", "unknown_parameter", "no query"),
        ("/v1/searches?limit=1&limit=2", "/query/limit", "duplicate_parameter", "once"),
        ("/v1/searches?label=a%00b", "/query/label", "invalid", "NUL"),
        ("/v1/searches?a~/b=1", "/query/a~0~1b", "unknown_parameter", ""),
    ],
)
def test_unknown_parameters(client, path, pointer, code, said):
    """422 with the place and what would be known."""
    first = check_problem(client.get(path), 422, "invalid_parameter")["errors"][0]
    assert (first["pointer"], first["code"]) == (pointer, code)
    assert said in first["message"]


@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        ("state=resting", ["queued", "running", "done", "failed", "cancelled"]),
        ("limit=0", ["1 to 100"]),
        ("limit=101", ["1 to 100"]),
        ("created_after=yesterday", ["2026-01-31T12:00:00Z"]),
        ("created_before=2026-01-31T12:00:00", ["2026-01-31T12:00:00Z"]),
        ("problem_digest=xyz", ["^[0-9a-f]{64}$"]),
    ],
)
def test_wrong_values_say_what_is_allowed(client, query, allowed):
    """In `allowed`."""
    document = check_problem(client.get(f"/v1/searches?{query}"), 422, "invalid_parameter")
    assert document["errors"][0]["allowed"] == allowed


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json", "application/*;q=0.1", "text/html, */*;q=0.1", "application/problem+json", ""]
)
def test_media_types_that_are_taken(client, accept):
    """Anything that covers JSON."""
    assert client.get("/healthz", headers={"Accept": accept}).status_code == 200


@pytest.mark.parametrize("accept", ["text/html", "application/xml, text/*", "*/*;q=0", "application/json;q=0.0", "x"])
def test_media_types_that_are_not(client, accept):
    """406 that says what there is."""
    document = check_problem(client.get("/healthz", headers={"Accept": accept}), 406, "not_acceptable")
    assert document["errors"][0]["allowed"] == ["application/json"]


def test_ranges_of_one_kind():
    """A range covers its own kind only."""
    require_acceptable(["text/*"], ("text/event-stream",))
    with pytest.raises(Problem):
        require_acceptable(["text/*"], ("application/json",))


def test_head_is_get_without_a_body(client, problem):
    """The same headers for everything that can be read."""
    search = client.post("/v1/searches", json=problem(), headers=WAIT).json()
    plan_id = search["result"]["plan"]["id"]
    for path in ("/healthz", "/v1/devices", "/openapi.json", f"/v1/plans/{plan_id}", f"/v1/searches/{search['id']}"):
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert dict(head.headers) == dict(get.headers)
    assert client.head("/nothing").status_code == 404
    assert client.head("/v1/evaluations").status_code == 405


def test_options_says_the_methods(client):
    """204 with Allow; 404 where there is nothing."""
    response = client.options("/v1/searches/x")
    assert (response.status_code, response.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH")
    assert client.options("/v1/searches").headers["allow"] == "GET, HEAD, OPTIONS, POST"
    check_problem(client.options("/nothing"), 404)


def test_wrong_methods_and_addresses_are_explained(client):
    """405 and 404 have details and something to go on with."""
    document = check_problem(client.put("/v1/searches/x"), 405, "method_not_allowed")
    assert document["errors"][0]["allowed"] == ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH"]
    assert "PATCH" in document["detail"]
    document = check_problem(client.get("/v1/serches"), 404, "not_found")
    assert "/v1/searches" in document["errors"][0]["allowed"]
    document = check_problem(client.get("/"), 404, "not_found")
    assert "/v1/searches" in document["errors"][0]["allowed"]
    assert "64 " in check_problem(client.get("/v1/plans/xyz"), 404)["detail"]


def test_an_empty_body_is_called_empty(client):
    """Not a JSON error at column 1."""
    response = client.post("/v1/searches", content=b"  ", headers={"Content-Type": "application/json"})
    assert "empty" in check_problem(response, 400, "malformed_json")["detail"]


def test_misspelt_members_have_a_hint(client):
    """The nearest known name."""
    document = check_problem(client.post("/v1/evaluations", json={"problem": {}, "layuot": {}}), 422)
    assert any("Did you mean layout?" in error["message"] for error in document["errors"])


def test_small_documents_stay_small(client):
    """A label needs no megabyte."""
    response = client.patch("/v1/searches/x", json={"label": "x" * 20_000})
    check_problem(response, 413, "body_too_large")


def test_our_own_mistakes_have_a_number(client, monkeypatch, caplog):
    """500 with the id under which it was logged, and nothing else of it."""

    def broken(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(client.app.state.services.searches.__class__, "page", broken)
    response = client.get("/v1/searches")
    document = check_problem(response, 500, "internal_error")
    assert document["request_id"] in caplog.text
    assert document["request_id"] in document["detail"]
    assert b"secret" not in response.content


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError, PoolTimeout])
def test_a_database_that_does_not_work(client, problem, monkeypatch, caplog, kind):
    """503 with a time to come again, and no word of the statement."""

    def broken(*_):
        raise kind("a secret", {}, Exception("disk is full")) if kind is not PoolTimeout else kind("disk is full")

    for name in ("page", "find_answer", "submit"):
        monkeypatch.setattr(client.app.state.services.searches.__class__, name, broken)
    for response in (client.get("/v1/searches"), client.post("/v1/searches", json=problem())):
        check_problem(response, 503, "unavailable")
        assert response.headers["retry-after"] == "5"
        assert b"secret" not in response.content
        assert b"disk" not in response.content
    assert "disk is full" in caplog.text


def test_metrics_count(client, problem):
    """Requests by route, searches by state."""
    client.post("/v1/searches", json=problem(), headers=WAIT)
    client.get("/v1/nothing/at/all")
    text = client.get("/metrics").text
    assert 'planner_http_requests_total{method="POST",route="/v1/searches",status="200"} 1.0' in text
    assert 'planner_http_requests_total{method="GET",route="other",status="404"} 1.0' in text
    assert 'planner_searches{state="done"} 1.0' in text
    assert 'planner_searches{state="running"} 0.0' in text
    assert "planner_event_loop_delay_seconds_count" in text
    assert "process_resident_memory_bytes" in text


def test_comparisons(client, problem):
    """Refusals have pointers; an unknown plan is named by its place."""
    result = client.post("/v1/searches", json=problem(), headers=WAIT).json()["result"]
    best, other = result["plan"]["id"], result["alternatives"][0]["plan_id"]
    answer = client.post("/v1/comparisons", json={"plans": [best, other]}).json()
    assert [plan["plan_id"] for plan in answer["plans"]] == [best, other]
    for body, pointer in (
        ({}, "/plans"),
        ({"plans": best}, "/plans"),
        ({"plans": [best]}, "/plans"),
        ({"plans": [best, best]}, "/plans"),
        ({"plans": [best, 3]}, "/plans"),
        ({"plans": [best, "f" * 64]}, "/plans/1"),
    ):
        document = check_problem(client.post("/v1/comparisons", json=body), 422, "invalid_document")
        assert document["errors"][0]["pointer"] == pointer
