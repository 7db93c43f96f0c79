"""Calibrations over HTTP: a profile is made, read, listed, and used by name in evaluations and searches."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from planner_service.api.examples import CALIBRATION, LAYOUT, PROBLEM
from planner_service.app import create_app
from tests.solver.validate import sample_rows as samples

TAIL = CALIBRATION["collectives"][0]


@pytest.fixture
def real(settings):
    """A client of an application with the real solver."""
    made = create_app(settings.model_copy(update={"evaluation_max_time_s": 120.0}))
    with TestClient(made, raise_server_exceptions=False) as client:
        yield client


def rows(*seconds: float) -> str:
    return samples.document(*({"step_time_s": str(value), "mbs": str(2**index)} for index, value in enumerate(seconds)))


def test_calibration_is_made_read_and_listed(real):
    made = real.post("/v1/calibrations", json={"name": "ours", "runs": rows(3.0, 2.4, 2.2), "collectives": [TAIL], **where()})
    assert made.status_code == 201, made.text
    assert made.headers["location"] == "/v1/profiles/ours"
    profile = made.json()
    assert profile["rows"]["used"] == 3
    assert {entry["set_by"] for entry in profile["constants"]} >= {"collective"}
    read = real.get("/v1/profiles/ours")
    assert read.json() == profile
    assert real.get("/v1/profiles/ours", headers={"If-None-Match": read.headers["etag"]}).status_code == 304
    listed = {entry["name"]: entry for entry in real.get("/v1/profiles").json()["profiles"]}
    assert listed["ours"] == {"name": "ours", "base": "megatron-core", "kind": "calibrated"}
    assert listed["megatron-core"]["kind"] == "shipped"
    assert real.get("/v1/profiles/megatron-core").json()["software"]["assumptions"]["step_overhead_s"] > 0.0
    assert real.get("/v1/profiles/none").status_code == 404


def test_problem_that_names_a_profile_is_priced_with_it(real):
    before = step_s(real, PROBLEM)
    real.post("/v1/calibrations", json={"name": "slow", "runs": rows(1.34, 1.2, 1.17)})
    by_software = {**PROBLEM, "workload": {**PROBLEM["workload"], "software": "slow"}}
    by_cluster = {**PROBLEM, "cluster": {**PROBLEM["cluster"], "profile": "slow"}}
    assert step_s(real, by_software) == step_s(real, by_cluster) > 1.02 * before
    unknown = {**PROBLEM, "cluster": {**PROBLEM["cluster"], "profile": "none"}}
    refused = real.post("/v1/evaluations", json={"problem": unknown, "layout": LAYOUT})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/problem/cluster/profile"
    assert refused.json()["errors"][0]["allowed"] == ["slow"]


def test_search_is_stored_with_the_content_of_its_profile(real):
    problem = {**PROBLEM, "cluster": {**PROBLEM["cluster"], "profile": "ours"}}
    digests = []
    for seconds in ((9.0, 8.0), (2.0, 1.8)):
        assert real.post("/v1/calibrations", json={"name": "ours", "runs": rows(*seconds)}).status_code == 201
        digests.append(real.post("/v1/searches", json=problem).json()["problem_digest"])
    assert digests[0] != digests[1], "the same bytes ask another question after a new calibration"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": None}, "/name"),
        ({"name": "megatron-core"}, "/name"),
        ({"runs": 3}, "/runs"),
        ({"runs": [{"speed": 1}]}, "/runs/speed"),
        ({"collectives": ["nothing"], "runs": None}, "/collectives/0"),
        ({"collectives": None}, "/runs"),
        ({"nodes": "two"}, "/nodes"),
        ({"speed": 1}, "/speed"),
        ({"base": "unheard-of"}, "/base"),
    ],
)
def test_faults_have_pointers(real, change, pointer):
    refused = real.post("/v1/calibrations", json={**CALIBRATION, **change})
    assert refused.status_code == 422, refused.text
    assert pointer in [error["pointer"] for error in refused.json()["errors"]]


def where() -> dict[str, object]:
    return {"device": "A100-SXM4-80", "ranks": 16, "nodes": 2}


def step_s(client, problem) -> float:
    answer = client.post("/v1/evaluations", json={"problem": problem, "layout": LAYOUT})
    assert answer.status_code == 200, answer.text
    return answer.json()["plan"]["prediction"]["step_time_s"]
