"""Small runs of the load benchmarks: the published figures come from the same code with larger counts on a quiet machine."""

from __future__ import annotations

import json
import sys
import threading

import httpx
import pytest

from benchmarks.load.bodies import large_bodies
from benchmarks.load.cached import BARE, process
from benchmarks.load.generator import Sample, measure, quantile, request_bytes
from benchmarks.load.loop_delay import figure, histograms
from benchmarks.load.soak import run as soak
from planner_service.api.bodies import SMALL_BODY_BYTES
from tests.service.fake_solver import NAME
from tests.service.servers import running_server

SLACK_S = 0.05
JSON = {"Content-Type": "application/json"}


def test_summaries():
    """Rates and quantiles of a sample."""
    sample = Sample(latencies_s=[0.001 * number for number in range(1, 101)], elapsed_s=2.0)
    assert sample.summary() == {"requests": 100, "requests_per_s": 50.0, "median_ms": 50.5, "p99_ms": 100.0, "max_ms": 100.0}
    assert quantile([1.0], 0.99) == 1.0


def test_histograms_are_compared():
    """Only what came between two readings counts."""
    before = {0.01: 5.0, 0.02: 5.0, 1.0: 5.0, float("inf"): 5.0}
    after = {0.01: 55.0, 0.02: 104.0, 1.0: 105.0, float("inf"): 105.0}
    made = figure("x", {"": before, "own_": before}, {"": after, "own_": after})
    assert (made["own_p50_ms_at_most"], made["own_p99_ms_at_most"], made["own_p100_ms_at_most"]) == (10, 20, 1000)
    assert (made["samples"], made["p50_ms_at_most"], made["p99_ms_at_most"], made["p100_ms_at_most"]) == (100, 10, 20, 1000)
    assert made["met"]


def test_large_bodies_are_large():
    """Each close to the limit and not above it."""
    for _, body in large_bodies().values():
        assert 7 * 2**20 < len(body) <= 8 * 2**20


@pytest.mark.ci
def test_cached_answers(live_server, problem, tmp_path):
    """32 clients: one answer, quickly, and not much later than a handler that does nothing."""
    body = json.dumps(problem()).encode()
    with httpx.Client(base_url=live_server, trust_env=False, timeout=60) as http:
        first = http.post("/v1/searches", content=body, headers={**JSON, "Prefer": "wait=30"})
        plan_path = f"/v1/plans/{first.json()['result']['plan']['id']}"
        plan = http.get(plan_path).content
    file = tmp_path / "answer.json"
    for method, path, sent, content in (("POST", "/v1/searches", body, first.content), ("GET", plan_path, b"", plan)):
        file.write_bytes(content)
        with process([sys.executable, "-c", BARE, str(file)]) as bare_url:
            bare_path = "/bare" if method == "POST" else "/bare/x"
            measure(bare_url, request_bytes(method, bare_url + bare_path, sent), 32, 0.5)
            bare = measure(bare_url, request_bytes(method, bare_url + bare_path, sent), 32, 2.0).summary()
            real = measure(live_server, request_bytes(method, live_server + path, sent), 32, 2.0, keep_bodies=True)
        assert set(real.statuses) == {200}
        assert real.bodies == {content}
        ours = real.summary()
        assert ours["requests_per_s"] >= 200
        assert ours["median_ms"] <= 2 * bare["median_ms"] + 1e3 * SLACK_S


@pytest.mark.ci
def test_large_bodies_do_not_stop_the_others(tmp_path):
    """While two searches run and 8 MiB bodies of every kind come in, the server does not hold up its event loop."""
    slow = {"model": {}, "workload": {}, "cluster": {}, "behaviour": {"steps": 1, "step_s": 300}}
    with (
        running_server(f"sqlite:///{tmp_path / 'large.db'}", solver_name=NAME, concurrent_searches=2) as (url, _),
        httpx.Client(base_url=url, trust_env=False, timeout=120) as http,
    ):
        for name in "ab":
            http.post("/v1/searches", json={**slow, "behaviour": {**slow["behaviour"], "name": name}})
        http.post("/v1/evaluations", json={"problem": {**slow}, "layout": {}})
        start = histograms(url)
        for path, body in large_bodies().values():
            assert len(body) > SMALL_BODY_BYTES
            assert http.post(path, content=body, headers=JSON).status_code in (200, 202, 400, 422)
        loaded = figure("busy", start, histograms(url))
    assert loaded["samples"] > 40
    assert loaded["own_p99_ms_at_most"] <= 20.0, loaded


@pytest.mark.ci
def test_a_hundred_sockets_with_one_new_problem(live_server, problem, tmp_path):
    """Over real connections: one id, one run."""
    count = tmp_path / "runs"
    body = problem(steps=1, step_s=0.5, count=str(count))
    ids, barrier = [], threading.Barrier(100)

    def post():
        with httpx.Client(base_url=live_server, trust_env=False, timeout=60) as http:
            barrier.wait()
            ids.append(http.post("/v1/searches", json=body, headers={"Prefer": "wait=30"}).json()["id"])

    threads = [threading.Thread(target=post) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 100
    assert len(set(ids)) == 1
    assert len(count.read_text().splitlines()) == 1


@pytest.mark.ci
@pytest.mark.timeout(600)
def test_a_short_soak():
    """Two minutes of mixed load: no server error, and memory settles (fifteen minutes are held to five percent)."""
    entry = soak(2.0)
    assert not any(status.startswith("5") for status in entry["statuses"])
    assert entry["growth_fraction"] <= 0.10, entry
