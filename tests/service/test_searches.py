"""Searches over HTTP: answered once, cached, coalesced, cancelled, limited."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import orjson
import pytest

from tests.service.fake_solver import plan


def raw_result(response):
    """The bytes of the member `result`."""
    text = response.content
    return text[text.index(b'"result":') : text.index(b',"error":')]


def test_accepted_then_done(client, problem, ended):
    """202 with a Location, whose document ends with the result."""
    response = client.post("/v1/searches", json=problem(steps=2, step_s=0.2))
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/searches/{response.json()['id']}"
    assert response.headers["retry-after"] == "1"
    document = ended(response.json()["id"])
    assert document["state"] == "done"
    assert document["result"]["status"] == "optimal"
    assert document["error"] is None
    assert document["progress"]["total"] == 2


def test_prefer_wait_blocks_until_done(client, problem):
    """With Prefer: wait the first answer is already the result."""
    response = client.post("/v1/searches", json=problem(), headers={"Prefer": "respond-async, wait=20"})
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=20"
    assert response.json()["state"] == "done"


def test_prefer_wait_ends(client, problem):
    """A wait that is too short gives 202; a huge one is cut to sixty seconds."""
    began_s = time.monotonic()
    response = client.post("/v1/searches", json=problem(steps=1, step_s=5), headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    assert time.monotonic() - began_s < 4
    again = client.get(f"/v1/searches/{response.json()['id']}", headers={"Prefer": "wait=999999999"})
    assert again.json()["state"] == "done"


@pytest.mark.parametrize("prefer", ["wait=-1", "wait=x", "wait", "wait=99999999999999999999", ""])
def test_a_wrong_preference_is_ignored(client, problem, prefer):
    """RFC 7240: what is not understood is ignored."""
    response = client.post("/v1/searches", json=problem(), headers={"Prefer": prefer})
    assert response.status_code in (200, 202)
    assert "preference-applied" not in response.headers


def test_the_same_problem_is_answered_from_the_store(client, problem):
    """The second POST is 200 with the same bytes, without another search."""
    headers = {"Prefer": "wait=20"}
    first = client.post("/v1/searches", json=problem(), headers=headers)
    second = client.post("/v1/searches", json=problem())
    third = client.get(first.headers["location"])
    assert second.status_code == 200
    assert first.json()["id"] == second.json()["id"]
    assert raw_result(first) == raw_result(second) == raw_result(third)


def test_a_proven_result_answers_other_search_options(client, problem):
    """Equal problem, other `search`: the proof answers it."""
    headers = {"Prefer": "wait=20"}
    first = client.post("/v1/searches", json=problem(search={"work_limit": 5}), headers=headers).json()
    second = client.post("/v1/searches", json=problem(search={"work_limit": 6}))
    assert second.status_code == 200
    assert second.json()["id"] == first["id"]
    assert second.json()["request_digest"] == first["request_digest"]


def test_an_unproven_result_answers_only_the_equal_request(client, problem):
    """A feasible result answers the same request again, but no other one."""
    headers = {"Prefer": "wait=20"}
    one = problem(status="feasible", search={"work_limit": 5})
    other = problem(status="feasible", search={"work_limit": 6})
    first = client.post("/v1/searches", json=one, headers=headers).json()
    assert client.post("/v1/searches", json=one, headers=headers).json()["id"] == first["id"]
    assert client.post("/v1/searches", json=other, headers=headers).json()["id"] != first["id"]


def test_two_clients_at_once_share_one_search(client, problem, tmp_path, ended):
    """Eight equal requests at the same moment: one id, one run."""
    count = tmp_path / "runs"
    document = problem(steps=1, step_s=0.3, count=str(count))
    ids, barrier = [], threading.Barrier(8)

    def post():
        barrier.wait()
        ids.append(client.post("/v1/searches", json=document).json()["id"])

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert ended(ids[0])["state"] == "done"
    assert len(count.read_text().splitlines()) == 1


def test_progress_is_polled(client, problem):
    """While it runs, done, total, incumbent, bound and gap are visible."""
    search_id = client.post("/v1/searches", json=problem(steps=50, step_s=0.1)).json()["id"]
    seen = set()
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s and len(seen) < 3:
        document = client.get(f"/v1/searches/{search_id}").json()
        assert set(document["progress"]) == {"done", "total", "incumbent", "bound", "gap"}
        seen.add(document["progress"]["done"])
        time.sleep(0.1)
    client.post(f"/v1/searches/{search_id}:cancel")
    assert len(seen) >= 3


@pytest.mark.parametrize("deaf", [False, True])
def test_cancel_kills(client, problem, tmp_path, ended, deaf):
    """A cancelled search ends within a second or so, whether it listens or not; its process is gone."""
    count = tmp_path / "runs"
    search_id = client.post("/v1/searches", json=problem(steps=1, step_s=60, deaf=deaf, count=str(count))).json()["id"]
    end_s = time.monotonic() + 10
    while not count.exists() and time.monotonic() < end_s:
        time.sleep(0.02)
    time.sleep(0.1)
    began_s = time.monotonic()
    response = client.post(f"/v1/searches/{search_id}:cancel")
    assert response.status_code == 202
    document = ended(search_id)
    assert time.monotonic() - began_s < 2.0
    assert document["state"] == "cancelled"
    assert (document["result"] is None) == deaf
    pid = int(count.read_text())
    end_s = time.monotonic() + 2
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end_s:
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    again = client.post(f"/v1/searches/{search_id}:cancel")
    assert again.status_code == 200
    assert again.json()["state"] == "cancelled"


def test_cancelled_is_searched_again(client, problem, ended):
    """A cancelled search answers nobody."""
    document = problem(steps=1, step_s=60)
    first = client.post("/v1/searches", json=document).json()["id"]
    client.post(f"/v1/searches/{first}:cancel")
    ended(first)
    second = client.post("/v1/searches", json=document).json()["id"]
    assert second != first
    client.post(f"/v1/searches/{second}:cancel")


def test_a_queued_search_is_cancelled_at_once(client, problem):
    """Behind two running ones, the third is cancelled before it starts."""
    ids = [client.post("/v1/searches", json=problem(steps=1, step_s=60, name=str(n))).json()["id"] for n in range(3)]
    time.sleep(0.5)
    response = client.post(f"/v1/searches/{ids[2]}:cancel")
    assert response.status_code == 200
    assert response.json()["state"] == "cancelled"
    for search_id in ids[:2]:
        client.post(f"/v1/searches/{search_id}:cancel")


def test_plans_of_a_result_are_readable_and_immutable(client, problem):
    """Best and alternative have their own address, an ETag and 304."""
    result = client.post("/v1/searches", json=problem(), headers={"Prefer": "wait=20"}).json()["result"]
    for plan_id in (result["plan"]["id"], result["alternatives"][0]["plan_id"]):
        response = client.get(f"/v1/plans/{plan_id}")
        assert response.json()["id"] == plan_id
        assert response.headers["etag"] == f'"{plan_id}"'
        assert "immutable" in response.headers["cache-control"]
        for condition in (f'"{plan_id}"', f'"x", W/"{plan_id}"', "*"):
            unchanged = client.get(f"/v1/plans/{plan_id}", headers={"If-None-Match": condition})
            assert unchanged.status_code == 304
            assert unchanged.content == b""
        assert client.get(f"/v1/plans/{plan_id}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_exports(client, problem):
    """200 with files and command, or 409 naming what cannot be expressed."""
    plan_id = client.post("/v1/searches", json=problem(), headers={"Prefer": "wait=20"}).json()["result"]["plan"]["id"]
    assert client.get(f"/v1/plans/{plan_id}/exports/fake").json()["command"] == plan_id
    refused = client.get(f"/v1/plans/{plan_id}/exports/other")
    assert refused.status_code == 409
    assert refused.json()["errors"][0]["pointer"] == "/layout/share"
    assert client.get(f"/v1/plans/{plan('unknown').id}/exports/fake").status_code == 404


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ({"refuse": True}, "invalid_problem"),
        ({"error": True}, "internal_error"),
        ({"memory": True}, "memory_limit"),
        ({"crash": True}, "poisoned"),
        ({"steps": 1, "step_s": 60, "deaf": True, "search": {"time_limit_s": 0.5}}, "time_limit"),
    ],
)
def test_failures_are_problem_documents(client, problem, ended, behaviour, code):
    """However a search fails, its error has a code, and the server goes on."""
    search_id = client.post("/v1/searches", json=problem(**behaviour)).json()["id"]
    document = ended(search_id, timeout_s=40)
    assert document["state"] == "failed"
    assert document["result"] is None
    assert document["error"]["code"] == code
    assert "secret" not in orjson.dumps(document).decode()
    assert client.get("/readyz").status_code == 200


def test_a_crashing_search_is_tried_three_times(client, problem, tmp_path, ended):
    """Then it is poisoned and not tried again."""
    count = tmp_path / "runs"
    search_id = client.post("/v1/searches", json=problem(crash=True, count=str(count))).json()["id"]
    ended(search_id)
    assert len(count.read_text().splitlines()) == 3


def test_the_time_limit_stops_a_listening_search(client, problem):
    """At its limit the search says what it has."""
    document = problem(steps=1, step_s=60, search={"time_limit_s": 0.5})
    response = client.post("/v1/searches", json=document, headers={"Prefer": "wait=20"}).json()
    assert response["state"] == "done"
    assert response["result"]["stopped_by"] == "time"


def test_list_pages(client, problem):
    """Newest first, a cursor to go on, no results inside."""
    ids = [client.post("/v1/searches", json=problem(name=str(n)), headers={"Prefer": "wait=20"}).json()["id"] for n in range(5)]
    first = client.get("/v1/searches", params={"limit": 3}).json()
    second = client.get("/v1/searches", params={"limit": 3, "cursor": first["next"]}).json()
    assert [item["id"] for item in first["searches"] + second["searches"]] == ids[::-1]
    assert second["next"] is None
    assert "result" not in first["searches"][0]
    assert client.get("/v1/searches", params={"state": "queued"}).json()["searches"] == []


def test_queue_full_is_429(settings, problem):
    """Beyond the bound a client is told to come back."""
    from fastapi.testclient import TestClient

    from planner_service.app import create_app
    from tests.service.fake_solver import NAME

    small = settings.model_copy(update={"max_queued_searches": 1, "concurrent_searches": 1})
    with TestClient(create_app(small, NAME)) as client:
        client.post("/v1/searches", json=problem(steps=1, step_s=60, name="a"))
        time.sleep(0.5)
        client.post("/v1/searches", json=problem(name="b"))
        response = client.post("/v1/searches", json=problem(name="c"))
        assert response.status_code == 429
        assert response.json()["code"] == "queue_full"
        assert "retry-after" in response.headers


def test_a_restarted_server_knows_and_resumes(settings, problem):
    """Finished searches are known; a running one goes back to the queue and ends."""
    from fastapi.testclient import TestClient

    from planner_service.app import create_app
    from tests.service.fake_solver import NAME

    with TestClient(create_app(settings, NAME)) as client:
        done = client.post("/v1/searches", json=problem(), headers={"Prefer": "wait=20"})
        running = client.post("/v1/searches", json=problem(steps=1, step_s=1.5, name="r")).json()["id"]
        time.sleep(0.7)
        assert client.get(f"/v1/searches/{running}").json()["state"] == "running"
    with TestClient(create_app(settings, NAME)) as client:
        assert raw_result(client.get(done.headers["location"])) == raw_result(done)
        assert client.get(f"/v1/searches/{running}", headers={"Prefer": "wait=20"}).json()["state"] == "done"
