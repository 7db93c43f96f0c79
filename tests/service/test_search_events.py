"""Server-sent events of a search: complete, numbered, replayable, and ending with the whole search."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import httpx
import orjson
import pytest

from planner_service.api.search_events import HEARTBEAT_S
from tests.service.servers import running_server

WAIT = {"Prefer": "wait=20"}


def parse(text):
    """The events of a stream as (id, kind, data); comments and the retry hint are left out."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in fields:
            number = int(fields["id"]) if "id" in fields else None
            events.append((number, fields["event"], orjson.loads(fields["data"])))
    return events


def test_a_stream_tells_everything_and_ends(client, problem):
    """From queued to done, with growing numbers; the last event is the search as GET gives it."""
    search_id = client.post("/v1/searches", json=problem(steps=4, step_s=0.5)).json()["id"]
    response = client.get(f"/v1/searches/{search_id}/events")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    events = parse(response.text)
    numbers = [number for number, _, _ in events]
    assert numbers == sorted(set(numbers))
    assert [data["state"] for _, kind, data in events if kind == "state"] == ["queued", "running"]
    told = [data for _, kind, data in events if kind in ("progress", "incumbent")]
    assert told
    assert all(set(data) == {"done", "total", "incumbent", "bound", "gap"} for data in told)
    assert events[-1][1] == "done"
    assert events[-1][2] == client.get(f"/v1/searches/{search_id}").json()
    assert [kind for _, kind, _ in events].count("done") == 1


def test_replay_goes_on_where_it_was(client, problem):
    """With Last-Event-ID exactly the later events come, the same as the first time."""
    search_id = client.post("/v1/searches", json=problem(steps=3, step_s=0.4), headers=WAIT).json()["id"]
    events = parse(client.get(f"/v1/searches/{search_id}/events").text)
    for index, (number, _, _) in enumerate(events[:-1]):
        again = client.get(f"/v1/searches/{search_id}/events", headers={"Last-Event-ID": str(number)})
        assert parse(again.text) == events[index + 1 :]
    finished = client.get(f"/v1/searches/{search_id}/events", headers={"Last-Event-ID": str(events[-1][0])})
    assert finished.status_code == 204
    assert finished.content == b""


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "99999999999999999999", "4294967296", "١"])
def test_wrong_numbers(client, problem, number):
    """422 for what is the number of no event."""
    search_id = client.post("/v1/searches", json=problem(), headers=WAIT).json()["id"]
    response = client.get(f"/v1/searches/{search_id}/events", headers={"Last-Event-ID": number.encode()})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/header/last-event-id"


def test_a_failed_and_a_cancelled_search_end_their_streams(client, problem, ended):
    """`done` comes whichever way it ended."""
    failed = client.post("/v1/searches", json=problem(refuse=True)).json()["id"]
    ended(failed)
    last = parse(client.get(f"/v1/searches/{failed}/events").text)[-1]
    assert (last[1], last[2]["state"], last[2]["error"]["code"]) == ("done", "failed", "invalid_problem")
    cancelled = client.post("/v1/searches", json=problem(steps=1, step_s=60)).json()["id"]
    timer = threading.Timer(1.0, lambda: client.post(f"/v1/searches/{cancelled}:cancel"))
    timer.start()
    last = parse(client.get(f"/v1/searches/{cancelled}/events").text)[-1]
    assert (last[1], last[2]["state"]) == ("done", "cancelled")


def test_unknown_and_deleted(client, problem):
    """404 and 410; HEAD does not stream."""
    search_id = client.post("/v1/searches", json=problem(), headers=WAIT).json()["id"]
    head = client.head(f"/v1/searches/{search_id}/events")
    assert (head.status_code, head.content) == (200, b"")
    assert client.delete(f"/v1/searches/{search_id}").status_code == 204
    assert client.get(f"/v1/searches/{search_id}/events").status_code == 410
    assert client.get("/v1/searches/0000000000000000000000000X/events").status_code == 404


def test_streams_are_counted_and_bounded(tmp_path):
    """Beyond the bound 429; a client that goes away makes room, and others are served meanwhile."""
    slow = {"model": {}, "workload": {}, "cluster": {}, "behaviour": {"steps": 1, "step_s": 30}}
    with (
        running_server(f"sqlite:///{tmp_path / 'streams.db'}", max_event_streams=2) as (url, _),
        httpx.Client(base_url=url, trust_env=False, timeout=10) as http,
    ):
        path = f"/v1/searches/{http.post('/v1/searches', json=slow).json()['id']}/events"
        with http.stream("GET", path) as one, http.stream("GET", path) as two:
            open_streams = [one.iter_bytes(), two.iter_bytes()]
            assert all(next(stream).startswith(b"retry") for stream in open_streams)
            refused = http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert refused.headers["retry-after"]
            assert "planner_event_streams 2.0" in http.get("/metrics").text
        end_s = time.monotonic() + 10
        while "planner_event_streams 0.0" not in http.get("/metrics").text and time.monotonic() < end_s:
            time.sleep(0.1)
        with http.stream("GET", path) as again:
            assert again.status_code == 200


def test_a_burst_stays_within_the_bound(tmp_path):
    """Two hundred streams asked for in the same moment: five are opened."""
    slow = {"model": {}, "workload": {}, "cluster": {}, "behaviour": {"steps": 1, "step_s": 30}}
    with running_server(f"sqlite:///{tmp_path / 'burst.db'}", max_event_streams=5) as (url, _), ExitStack() as stack:
        search_id = httpx.post(f"{url}/v1/searches", json=slow, trust_env=False).json()["id"]
        address = url.removeprefix("http://").split(":")
        asked = [stack.enter_context(socket.create_connection((address[0], int(address[1])), timeout=20)) for _ in range(200)]
        for connection in asked:
            connection.sendall(f"GET /v1/searches/{search_id}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        statuses = [connection.recv(12)[-3:] for connection in asked]
    assert (statuses.count(b"200"), statuses.count(b"429")) == (5, 195)


def test_silence_is_broken(client, problem, monkeypatch):
    """A search that says nothing still sends comments, so that proxies keep the connection."""
    assert HEARTBEAT_S <= 30
    monkeypatch.setattr("planner_service.api.search_events.HEARTBEAT_S", 0.3)
    search_id = client.post("/v1/searches", json=problem(steps=1, step_s=2.5)).json()["id"]
    assert ": still there\n\n" in client.get(f"/v1/searches/{search_id}/events").text
