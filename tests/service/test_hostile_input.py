"""No input makes the service fail: every trap gets a problem document, and nothing of the input comes back."""

from __future__ import annotations

import random

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from planner_service.body import MAX_VALUES, parse_json
from planner_service.problems import Problem
from solver.problem.tree import MAX_NODES

JSON = {"Content-Type": "application/json"}
POSTS = ("/v1/searches", "/v1/evaluations", "/v1/imports/hf-config")
GOOD = '"model":{},"workload":{},"cluster":{}'


def check_problem(response, status, code=None):
    """A complete problem document with the status it says."""
    assert response.status_code == status, response.content[:300]
    assert response.headers["content-type"] == "application/problem+json"
    document = orjson.loads(response.content)
    assert document["status"] == status
    assert {"type", "title", "detail", "code", "errors"} <= set(document)
    for error in document["errors"]:
        assert set(error) == {"pointer", "code", "message", "allowed"}
    assert len(response.content) < 100_000
    if code is not None:
        assert document["code"] == code
    return document


@pytest.mark.parametrize("path", POSTS[:2])
@pytest.mark.parametrize(
    ("body", "pointer"),
    [(b'{"layers": NaN}', "/layers"), (b'{"a": [1, {"b": Infinity}]}', "/a/1/b"), (b'{"a": -Infinity}', "/a")],
)
def test_infinities(client, path, body, pointer):
    """422 in our own documents."""
    errors = check_problem(client.post(path, content=body, headers=JSON), 422)["errors"]
    assert (errors[0]["pointer"], errors[0]["code"]) == (pointer, "invalid")


def test_infinities_in_files_of_others(client):
    """Python writes them into config.json, where nobody reads them."""
    body = b'{"model_type": "llama", "unused": [NaN, Infinity, -Infinity]}'
    assert client.post("/v1/imports/hf-config", content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        (b'{"a": 1e999}', 422, "too_large", "/a"),
        (b'{"a": "\\ud800"}', 422, "invalid", "/a"),
        (b'{"a": {"\\udfff": 1}}', 422, "invalid", "/a"),
        (b'{"a": "x\\u0000y"}', 422, "invalid", "/a"),
        (b'{"a\\u0000": 1}', 422, "invalid", ""),
        (b'{"a": 1, "a": 1}', 422, "duplicate_key", "/a"),
        (b'{"m": {"x~/y": 1, "b": 2, "x~/y": 3}}', 422, "duplicate_key", "/m/x~0~1y"),
        (b"[]", 422, "wrong_type", ""),
        (b'"text"', 422, "wrong_type", ""),
        (b"null", 422, "wrong_type", ""),
        (b"17", 422, "wrong_type", ""),
    ],
)
def test_documents_without_one_clear_meaning(client, path, body, status, code, pointer):
    """422 with the pointer of what is wrong."""
    errors = check_problem(client.post(path, content=body, headers=JSON), status)["errors"]
    assert (errors[0]["pointer"], errors[0]["code"]) == (pointer, code)


def test_more_values_than_the_solver_takes():
    """Counted by list and not looked at one by one, which takes ten times as long."""
    with pytest.raises(Problem) as refused:
        parse_json(b'{"a": [' + b"1," * MAX_VALUES + b"1]}")
    assert refused.value.status == 422
    assert [(error.pointer, error.code) for error in refused.value.errors] == [("", "too_large")]
    assert MAX_VALUES == MAX_NODES


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": }',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 01}',
        b'{"a": "\x00"}',
        b'{"a": "\xff\xfe"}',
        b'{"a": "\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": 0.' + b"1" * 5000 + b"}",
        b"[" * 90_000,
        b"[" * 90_000 + b"]" * 90_000,
        b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
        b"[" * 65 + b"]" * 65,
    ],
)
def test_not_json(client, path, body):
    """400: there is no document to point into."""
    check_problem(client.post(path, content=body, headers=JSON), 400, "malformed_json")


@pytest.mark.parametrize("path", POSTS)
def test_a_body_that_is_too_large(client, path):
    """413 while reading, with or without an announced length; nothing is echoed."""
    body = b'{"a": "' + b"secret" * 100_000 + b'"}'
    response = client.post(path, content=body, headers=JSON)
    check_problem(response, 413, "body_too_large")
    assert b"secret" not in response.content
    chunks = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    check_problem(client.post(path, content=chunks, headers=JSON), 413, "body_too_large")


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": ""},
        {"Content-Type": "application/yaml"},
        {**JSON, "Content-Encoding": "gzip"},
    ],
)
def test_other_media_types(client, path, headers):
    """415, before the body is looked at."""
    check_problem(client.post(path, content=b"{}", headers=headers), 415, "unsupported_media_type")


@pytest.mark.parametrize("media", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"])
def test_spellings_of_json(client, media):
    """What is JSON is taken as JSON."""
    response = client.post("/v1/imports/hf-config", content=b'{"model_type": "llama"}', headers={"Content-Type": media})
    assert response.status_code == 200


def test_large_numbers_are_no_trouble(client):
    """Integers beyond 64 bits are floats, as in every other JSON reader; nothing overflows."""
    for number in ("9" * 19, "9" * 25, "9" * 299, "-" + "9" * 299, "1e308", "1e-400"):
        body = f'{{{GOOD},"behaviour":{{"status":"optimal","value":{number}}}}}'.encode()
        assert client.post("/v1/searches", content=body, headers=JSON).status_code in (200, 202, 422)


def test_routes_that_do_not_exist(client):
    """404 and 405 are problem documents too, 405 with Allow."""
    for path in ("/", "/v1", "/v1/nothing", "/v1/searches/", "/v1/imports/nothing", "/v1/searches/x/y", "/v1/plans", "/v1/%00"):
        check_problem(client.get(path, follow_redirects=True), 404)
    response = client.request("DELETE", "/v1/searches")
    check_problem(response, 405, "method_not_allowed")
    assert "GET" in response.headers["allow"]
    check_problem(client.get("/v1/evaluations"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    "name", ["x", "0" * 26, "0" * 64, "A" * 64, "%00", "..%2f..%2fetc%2fpasswd", "'; DROP TABLE plans;--", "é☃", "a" * 5000]
)
def test_ids_that_do_not_exist(client, name):
    """404 for anything that is no id of ours."""
    for path in (f"/v1/searches/{name}", f"/v1/plans/{name}", f"/v1/plans/{name}/exports/fake"):
        check_problem(client.get(path), 404)
    check_problem(client.post(f"/v1/searches/{name}:cancel"), 404)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=1e3",
        "state=resting",
        "cursor=x",
        "cursor=%00",
        "cursor=" + "A" * 300,
        "cursor=é",
        "cursor=MS5a",
    ],
)
def test_query_parameters(client, query):
    """422 that does not echo the value."""
    document = check_problem(client.get(f"/v1/searches?{query}"), 422, "invalid_parameter")
    assert document["errors"][0]["pointer"].startswith("/query/")


def test_members_of_an_evaluation(client):
    """Both members, no other, both objects."""
    check_problem(client.post("/v1/evaluations", json={}), 422)
    check_problem(client.post("/v1/evaluations", json={"problem": {}, "layout": {}, "more": 1}), 422)
    document = check_problem(client.post("/v1/evaluations", json={"problem": {}, "layout": 3}), 422)
    assert document["errors"][0]["pointer"] == "/layout"


def test_unknown_fields_have_pointers_and_allowed(client):
    """What the solver refuses reaches the client with what would be allowed."""
    document = check_problem(client.post("/v1/searches", json={"modell": {}}), 422, "invalid_problem")
    first = document["errors"][0]
    assert first["pointer"] == "/modell"
    assert "model" in first["allowed"]


def test_many_errors_are_cut(client):
    """Ten thousand wrong fields do not make a huge answer."""
    body = {f"field{number}": 0 for number in range(10_000)}
    assert len(check_problem(client.post("/v1/searches", json=body), 422)["errors"]) == 100


def test_openapi_and_health(client):
    """The document of the interface lists the refusals of bodies (test_openapi has the rest)."""
    document = client.get("/openapi.json").json()
    for path in POSTS:
        assert {"400", "413", "415", "422"} <= set(document["paths"][path]["post"]["responses"])
        assert document["paths"][path]["post"]["requestBody"]["required"]
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    for path in ("/v1/devices", "/v1/models", "/v1/frameworks"):
        assert client.get(path).status_code == 200


def test_random_bytes(client):
    """Two thousand damaged documents: never a server error."""
    generator = random.Random(7)
    seed = orjson.dumps({"model": {"preset": "x"}, "workload": {"a": [1, 2.5, None, True]}, "cluster": {"k": "é"}})
    for _ in range(2000):
        body = bytearray(seed)
        for _ in range(generator.randrange(1, 6)):
            position = generator.randrange(len(body))
            body[position : position + generator.randrange(3)] = generator.randbytes(generator.randrange(3))
        path = generator.choice(POSTS)
        assert client.post(path, content=bytes(body), headers=JSON).status_code < 500


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
@hypothesis_settings(max_examples=200, deadline=None)
def test_parsing_agrees_with_orjson(value):
    """What is accepted means the same to another reader."""
    import json

    text = json.dumps(value)
    try:
        parsed = parse_json(text.encode())
    except Problem:
        return
    assert parsed == orjson.loads(text) or "1180591620717411303424" in text or str(2**64)[:5] in text


@given(st.binary(max_size=200))
@hypothesis_settings(max_examples=500, deadline=None)
def test_parsing_bytes_only_refuses(raw):
    """Any bytes: a value or a problem."""
    try:
        parse_json(raw)
    except Problem as problem:
        orjson.loads(problem.text())


def test_fifty_megabytes_over_a_socket(live_server):
    """A real connection gets 413 for 50 MB instead of a reset, whether announced or chunked."""
    body = b'{"a": "' + b"x" * 50_000_000 + b'"}'
    with httpx.Client(base_url=live_server, timeout=30, trust_env=False) as http:
        check_problem(http.post("/v1/searches", content=body, headers=JSON), 413, "body_too_large")
        chunks = (body[start : start + 65_536] for start in range(0, len(body), 65_536))
        check_problem(http.post("/v1/searches", content=chunks, headers=JSON), 413, "body_too_large")
        assert http.get("/healthz").status_code == 200
