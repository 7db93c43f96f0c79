"""The real solver over HTTP: a certified plan, its alternatives, its export, and the same bytes when asked again."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from planner_service.app import create_app

SMALL = {
    "model": {"preset": "llama-3.1-8b"},
    "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
    "cluster": {"groups": [{"name": "a100", "device": "A100-SXM4-80", "nodes": 1}]},
    "framework": "megatron-core",
}
TOO_LARGE = {
    **SMALL,
    "model": {"preset": "llama-3.1-70b"},
    "cluster": {"groups": [{"name": "a100", "device": "A100-SXM4-40", "nodes": 1, "host": {"memory_bytes": 2.0e12}}]},
    "framework": "any",
    "constraints": {"fixed": {"offload_optimizer": 0}},
}
WAIT = {"Prefer": "wait=60"}


@pytest.fixture
def real(settings):
    """A client of a service with the real solver."""
    roomy = settings.model_copy(
        update={"search_max_time_s": 120.0, "search_max_memory_bytes": 16 * 2**30, "evaluation_max_time_s": 60.0}
    )
    with TestClient(create_app(roomy), raise_server_exceptions=False) as client:
        yield client


def finished(client, problem):
    """Posts and waits until done."""
    response = client.post("/v1/searches", json=problem, headers=WAIT)
    while response.status_code == 202:
        response = client.get(response.headers["location"], headers=WAIT)
    assert response.json()["state"] == "done", response.json()["error"]
    return response


def raw_result(response):
    """The bytes of the member `result`."""
    return response.content[response.content.index(b'"result":') : response.content.index(b',"error":')]


def test_a_certified_plan(real):
    """Optimal with its proof; every plan it names is there; the export is what Megatron starts with."""
    first = finished(real, SMALL)
    result = first.json()["result"]
    assert result["status"] == "optimal"
    assert result["certificate"]["gap"] <= 1e-6
    assert result["certificate"]["cells"]["open"] == 0
    named = [result["plan"]["id"], *(item["plan_id"] for item in result["alternatives"])]
    for plan_id in named:
        assert real.get(f"/v1/plans/{plan_id}").json()["id"] == plan_id
    assert real.get(f"/v1/plans/{named[0]}").json() == result["plan"]
    export = real.get(f"/v1/plans/{named[0]}/exports/megatron-core").json()
    text = "".join(file["content"] for file in export["files"])
    assert "--tensor-model-parallel-size" in text
    assert real.get(f"/v1/plans/{named[0]}/exports/any").status_code == 404
    spelled = {**SMALL, "framework": {"name": "megatron-core"}, "search": {"target_gap": 0}}
    for problem in (SMALL, spelled):
        again = real.post("/v1/searches", json=problem)
        assert again.status_code == 200
        assert raw_result(again) == raw_result(first)


def test_the_best_plan_is_what_evaluation_says(real):
    """The layout of the result, given back as a layout, gets the same id and price."""
    plan = finished(real, SMALL).json()["result"]["plan"]
    response = real.post("/v1/evaluations", json={"problem": SMALL, "layout": plan["layout"]})
    assert response.json()["verdict"] == "ok"
    assert response.json()["plan"] == plan


def test_infeasible_says_what_would_fit(real):
    """Each relaxation has a plan that can be read and evaluated under the changed problem."""
    result = finished(real, TOO_LARGE).json()["result"]
    assert result["status"] == "infeasible"
    assert result["infeasible"]["relaxations"]
    for relaxation in result["infeasible"]["relaxations"]:
        plan = real.get(f"/v1/plans/{relaxation['plan_id']}").json()
        assert plan["id"] == relaxation["plan_id"]
        for framework in plan["expressible_in"]:
            assert real.get(f"/v1/plans/{plan['id']}/exports/{framework}").status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"model": {"preset": "llama-3.1-8bb"}}, "/model/preset"),
        ({"framework": "deepspeed"}, "/framework"),
        ({"objective": "energy", "workload": {}}, "/workload"),
    ],
)
def test_refused_at_once(real, change, pointer):
    """What cannot be searched is 422 at the POST, not a failed search later."""
    response = real.post("/v1/searches", json={**SMALL, **change})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"].startswith(pointer)
