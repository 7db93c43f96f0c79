"""Labels, notes and tags; lists by what is known; deletion; keys of requests."""

from __future__ import annotations

import time

import pytest

WAIT = {"Prefer": "wait=20"}
MOMENT = "2026-01-31T12:00:00Z"


def made(client, problem, name, **parameters):
    """The document of a search that has ended."""
    response = client.post("/v1/searches", json=problem(name=name), headers=WAIT, params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def ids(client, **parameters):
    """Ids of a list."""
    response = client.get("/v1/searches", params=parameters)
    assert response.status_code == 200, response.text
    return [item["id"] for item in response.json()["searches"]]


def test_a_label_names_a_new_search_only(client, problem):
    """Given at the POST it is kept; who finds the search later does not rename it."""
    first = made(client, problem, "a", label="nightly é")
    assert (first["label"], first["note"], first["tags"]) == ("nightly é", None, [])
    again = made(client, problem, "a", label="mine")
    assert (again["id"], again["label"]) == (first["id"], "nightly é")


def test_edit(client, problem):
    """Only what is given changes; null takes away; the next GET shows it."""
    search_id = made(client, problem, "a", label="one")["id"]
    path = f"/v1/searches/{search_id}"
    before = client.get(path)
    edited = client.patch(path, json={"note": "line\nline", "tags": ["b", "a"]}).json()
    assert (edited["label"], edited["note"], sorted(edited["tags"])) == ("one", "line\nline", ["a", "b"])
    after = client.get(path, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json() == edited
    assert client.get(path, headers={"If-None-Match": after.headers["etag"]}).status_code == 304
    cleared = client.patch(path, json={"label": None, "tags": []}).json()
    assert (cleared["label"], cleared["note"], cleared["tags"]) == (None, "line\nline", [])


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({}, "", "missing"),
        ({"labl": "x"}, "/labl", "unknown_field"),
        ({"state": "done"}, "/state", "unknown_field"),
        ({"label": ""}, "/label", "too_short"),
        ({"label": " "}, "/label", "too_short"),
        ({"label": "x" * 101}, "/label", "too_long"),
        ({"label": 3}, "/label", "wrong_type"),
        ({"label": "a\u202eb"}, "/label", "invalid"),
        ({"label": "a\nb"}, "/label", "invalid"),
        ({"note": "x" * 2001}, "/note", "too_long"),
        ({"tags": "x"}, "/tags", "wrong_type"),
        ({"tags": [1]}, "/tags/0", "wrong_type"),
        ({"tags": [str(number) for number in range(21)]}, "/tags", "too_long"),
        ({"tags": ["a", "a"]}, "/tags", "duplicate_value"),
        ({"tags": ["a", ""]}, "/tags/1", "too_short"),
    ],
)
def test_wrong_edits(client, problem, change, pointer, code):
    """422 with the pointer, and nothing changes."""
    search = made(client, problem, "a")
    response = client.patch(f"/v1/searches/{search['id']}", json=change)
    assert response.status_code == 422
    assert (response.json()["errors"][0]["pointer"], response.json()["errors"][0]["code"]) == (pointer, code)
    assert client.get(f"/v1/searches/{search['id']}").json() == search


def test_a_wrong_label_at_the_post_starts_nothing(client, problem):
    """422 with the place in the query."""
    response = client.post("/v1/searches", json=problem(), params={"label": "x" * 101})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/query/label")
    assert ids(client) == []


def test_filters(client, problem):
    """Each narrows the list; together they are all required."""
    one, two = made(client, problem, "a", label="x"), made(client, problem, "b")
    client.patch(f"/v1/searches/{two['id']}", json={"tags": ["t", "u"]})
    assert ids(client, label="x") == [one["id"]]
    assert ids(client, tag="u") == [two["id"]]
    assert ids(client, tag="v") == []
    assert ids(client, state="done") == [two["id"], one["id"]]
    assert ids(client, problem_digest=one["problem_digest"]) == [one["id"]]
    assert ids(client, request_digest=two["request_digest"]) == [two["id"]]
    assert ids(client, framework=one["framework"]) == [two["id"], one["id"]]
    assert ids(client, model="no such model") == []
    assert ids(client, created_after=MOMENT) == [two["id"], one["id"]]
    assert ids(client, created_before="2026-01-31T13:00:00+01:00") == []
    assert ids(client, label="x", tag="t") == []


def test_pages_of_a_filtered_list(client, problem):
    """The cursor goes on within the filter."""
    wanted = [made(client, problem, str(number), label="x")["id"] for number in range(3)]
    made(client, problem, "other")
    first = client.get("/v1/searches", params={"label": "x", "limit": 2}).json()
    second = client.get("/v1/searches", params={"label": "x", "limit": 2, "cursor": first["next"]}).json()
    assert [item["id"] for item in first["searches"] + second["searches"]] == wanted[::-1]
    assert second["next"] is None


def test_delete(client, problem):
    """204, then 410 everywhere; its plans stay; an equal problem is searched anew."""
    search = made(client, problem, "a")
    path, plan_id = f"/v1/searches/{search['id']}", search["result"]["plan"]["id"]
    assert client.get(path).status_code == 200
    response = client.delete(path)
    assert (response.status_code, response.content) == (204, b"")
    for answer in (client.get(path), client.delete(path), client.patch(path, json={"label": "x"}), client.post(f"{path}:cancel")):
        assert (answer.status_code, answer.json()["code"]) == (410, "gone")
    assert client.get(path, headers=WAIT).status_code == 410
    assert client.get(f"/v1/plans/{plan_id}").status_code == 200
    assert ids(client) == []
    assert made(client, problem, "a")["id"] != search["id"]


def test_what_has_not_ended_is_not_deleted(client, problem):
    """409 that says what to do first."""
    search_id = client.post("/v1/searches", json=problem(steps=1, step_s=60)).json()["id"]
    response = client.delete(f"/v1/searches/{search_id}")
    assert (response.status_code, response.json()["code"]) == (409, "not_ended")
    assert ":cancel" in response.json()["detail"]
    client.post(f"/v1/searches/{search_id}:cancel")


def test_a_key_gets_the_same_search_again(client, problem, ended):
    """Whatever became of it: a retry does not start a second one."""
    headers = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    first = client.post("/v1/searches", json=problem(refuse=True), headers=headers).json()["id"]
    ended(first)
    again = client.post("/v1/searches", json=problem(refuse=True), headers=headers)
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (200, first, "failed")
    assert client.post("/v1/searches", json=problem(refuse=True)).json()["id"] != first


def test_a_key_belongs_to_one_request(client, problem):
    """Another body with the same key is refused; another spelling of the same is not."""
    headers = {"Idempotency-Key": "k1", **WAIT}
    first = client.post("/v1/searches", json=problem(name="a"), headers=headers).json()
    other = client.post("/v1/searches", json=problem(name="b"), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    reordered = dict(reversed(problem(name="a").items()))
    assert client.post("/v1/searches", json=reordered, headers=headers).json()["id"] == first["id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "é".encode()])
def test_wrong_keys(client, problem, key):
    """422 that names the header."""
    response = client.post("/v1/searches", json=problem(), headers={"Idempotency-Key": key})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/header/idempotency-key")


def test_an_edit_during_a_wait_does_not_end_it(client, problem):
    """Waiting is for the end."""
    search_id = client.post("/v1/searches", json=problem(steps=1, step_s=1.0)).json()["id"]
    client.patch(f"/v1/searches/{search_id}", json={"label": "x"})
    began_s = time.monotonic()
    answer = client.get(f"/v1/searches/{search_id}", headers=WAIT).json()
    assert (answer["state"], answer["label"]) == ("done", "x")
    assert time.monotonic() - began_s < 10
