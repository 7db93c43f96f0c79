"""Answers kept in memory: the same bytes as from the store, and never one that is not true any more."""

from __future__ import annotations

import asyncio
import threading

import orjson
import pytest
from fastapi.testclient import TestClient

from planner_service.api.answers import Answer, Answers, Generation, Key
from planner_service.app import create_app
from planner_service.store.engine import open_engine
from planner_service.store.glance import Glance
from planner_service.store.migrate import upgrade
from planner_service.store.records import NewSearch
from planner_service.store.searches import SearchStore
from tests.service.fake_solver import NAME

WAIT = {"Prefer": "wait=20"}
LONG_WAY = {"Accept": "application/json;q=0.9"}
JSON = {"Content-Type": "application/json"}


def hits(client):
    """How many answers came from memory so far."""
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith('planner_answer_cache_total{outcome="hit"}'))


@pytest.fixture
def body(problem):
    """The bytes of a request."""
    return orjson.dumps(problem())


def test_memory_and_store_say_the_same(client, body):
    """Status, headers and bytes, for both kinds of question."""
    search = client.post("/v1/searches", content=body, headers={**JSON, **WAIT})
    plan_path = f"/v1/plans/{search.json()['result']['plan']['id']}"
    for ask in (
        lambda headers: client.post("/v1/searches", content=body, headers={**JSON, **headers}),
        lambda headers: client.get(plan_path, headers=headers),
    ):
        long, short = ask(LONG_WAY), ask({})
        known = hits(client)
        again = ask({})
        assert hits(client) == known + 1
        assert long.status_code == short.status_code == again.status_code == 200
        assert long.content == short.content == again.content
        assert dict(long.headers) == dict(short.headers) == dict(again.headers)


def test_what_is_special_is_not_cut_short(client, body):
    """Conditions, preferences, media types and queries are looked at although the answer is in memory."""
    search = client.post("/v1/searches", content=body, headers={**JSON, **WAIT})
    plan_id = search.json()["result"]["plan"]["id"]
    for _ in range(2):
        assert client.get(f"/v1/plans/{plan_id}").status_code == 200
        assert client.get(f"/v1/plans/{plan_id}", headers={"If-None-Match": f'"{plan_id}"'}).status_code == 304
        assert client.get(f"/v1/plans/{plan_id}?x=1").status_code == 422
        assert client.get(f"/v1/plans/{plan_id}", headers={"Accept": "text/csv"}).status_code == 406
        assert client.head(f"/v1/plans/{plan_id}").content == b""
        assert client.post("/v1/searches", content=body, headers=JSON).status_code == 200
        assert client.post("/v1/searches", content=body, headers={"Content-Type": "text/plain"}).status_code == 415
        assert client.post("/v1/searches", content=body, headers={**JSON, "Content-Encoding": "gzip"}).status_code == 415
        assert client.post("/v1/searches", content=body, headers={**JSON, **WAIT}).headers["preference-applied"] == "wait=20"
        assert client.post("/v1/searches?label=", content=body, headers=JSON).status_code == 422


def test_an_edit_is_seen_at_once(client, body):
    """The next answer carries the new label."""
    search = client.post("/v1/searches", content=body, headers={**JSON, **WAIT}).json()
    for number in range(5):
        client.patch(f"/v1/searches/{search['id']}", json={"label": str(number)})
        for _ in range(3):
            assert client.post("/v1/searches", content=body, headers=JSON).json()["label"] == str(number)
            assert client.get(f"/v1/searches/{search['id']}").json()["label"] == str(number)


def test_a_deletion_is_seen_at_once(client, body):
    """An equal problem is searched anew, not answered from memory."""
    for _ in range(3):
        search = client.post("/v1/searches", content=body, headers={**JSON, **WAIT}).json()
        assert client.post("/v1/searches", content=body, headers=JSON).json()["id"] == search["id"]
        assert client.delete(f"/v1/searches/{search['id']}").status_code == 204
        assert client.get(f"/v1/searches/{search['id']}").status_code == 410
        assert client.post("/v1/searches", content=body, headers={**JSON, **WAIT}).json()["id"] != search["id"]


def test_what_another_server_deletes_is_gone_here(client, settings, body):
    """Two servers on one database: neither answers what the other took away."""
    with TestClient(create_app(settings, NAME)) as other:
        search = client.post("/v1/searches", content=body, headers={**JSON, **WAIT}).json()
        for _ in range(2):
            assert client.post("/v1/searches", content=body, headers=JSON).json()["id"] == search["id"]
        assert other.delete(f"/v1/searches/{search['id']}").status_code == 204
        assert client.get(f"/v1/searches/{search['id']}").status_code == 410
        assert client.post("/v1/searches", content=body, headers={**JSON, **WAIT}).json()["id"] != search["id"]


def test_unproven_answers_give_way_to_proven_ones(client, problem):
    """A feasible result is not kept for the next POST: another request may have proven the problem meanwhile."""
    one = problem(status="feasible", search={"work_limit": 5})
    client.post("/v1/searches", json=one, headers=WAIT)
    known = hits(client)
    client.post("/v1/searches", json=one)
    client.post("/v1/searches", json=one)
    assert hits(client) == known


def test_a_hundred_clients_with_one_new_problem(client, problem, tmp_path, ended):
    """One search, one run."""
    count = tmp_path / "runs"
    document = problem(steps=1, step_s=0.3, count=str(count))
    ids, barrier = [], threading.Barrier(100)

    def post():
        barrier.wait()
        response = client.post("/v1/searches", json=document)
        assert response.status_code in (200, 202), response.text
        ids.append(response.json()["id"])

    threads = [threading.Thread(target=post) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 100
    assert len(set(ids)) == 1
    ended(ids[0])
    assert len(count.read_text().splitlines()) == 1
    assert len(client.get("/v1/searches").json()["searches"]) == 1


def test_the_oldest_give_way():
    """Bytes are bounded; what was used last stays; what is larger than everything is not kept."""

    async def work():
        answers = Answers(Generation(lambda: 1, lambda: 1), 3 * 1600)
        keys = [Key("plan", str(number)) for number in range(3)]
        for key in keys:
            answers.keep(key, Answer(b"x" * 1000, '"e"'), 1)
        assert await answers.find(keys[0]) is not None
        answers.keep(Key("plan", "new"), Answer(b"x" * 1000, '"e"'), 1)
        assert await answers.find(keys[1]) is None
        assert await answers.find(keys[0]) is not None
        answers.keep(Key("plan", "huge"), Answer(b"x" * 5000, '"e"'), 1)
        assert await answers.find(Key("plan", "huge")) is None
        assert answers.size_bytes <= 3 * 1600

    asyncio.run(work())


def test_waiting_calls_share_a_reading_that_began_after_them():
    """Ten calls during a reading join the next one, and see what was written before they came."""

    async def work():
        value, readings = 1, []
        gate = threading.Event()

        def read():
            seen = value
            readings.append(seen)
            gate.wait(5)
            return seen

        generation = Generation(read, lambda: None)
        first = asyncio.create_task(generation.now())
        while not readings:
            await asyncio.sleep(0.01)
        value = 2
        others = [asyncio.create_task(generation.now()) for _ in range(10)]
        await asyncio.sleep(0.05)
        gate.set()
        assert await first == 1
        assert await asyncio.gather(*others) == [2] * 10
        assert readings == [1, 2]
        generation.stop()

    asyncio.run(work())


def test_a_reading_that_fails_fails_its_callers_only():
    """The next call reads again."""

    async def work():
        outcomes = iter([RuntimeError("no database"), 7])

        def read():
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        generation = Generation(read, lambda: None)
        with pytest.raises(RuntimeError):
            await generation.now()
        assert await generation.now() == 7
        generation.stop()

    asyncio.run(work())


def test_a_glance_sees_what_is_committed(settings):
    """At once after the commit of another connection, also while a writer holds the database."""
    engine = open_engine(settings.database_url)
    upgrade(engine)
    store, glance = SearchStore(engine), Glance(engine)
    search = store.submit(NewSearch("{}", "0" * 64, "1" * 64)).search
    before = glance.generation()
    store.edit(search.id, label="x")
    assert glance.generation() == before + 1 == store.generation()
    with engine.connect().execution_options(planner_writes=True) as writer, writer.begin():
        assert glance.generation() == before + 1
    glance.close()
    engine.dispose()
