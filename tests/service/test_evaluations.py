"""Evaluations over HTTP: verdicts, stored plans, and a child that hangs or dies without taking the service with it."""

from __future__ import annotations

import threading
import time

import pytest

from tests.service.fake_solver import digest, plan


def evaluate(client, layout):
    problem = {"model": {}, "workload": {}, "cluster": {}}
    return client.post("/v1/evaluations", json={"problem": problem, "layout": layout})


def test_the_plan_is_stored(client):
    """A legal layout's plan can be read and exported afterwards."""
    layout = {"tp": 4}
    response = evaluate(client, layout)
    assert response.status_code == 200
    plan_id = response.json()["plan"]["id"]
    assert plan_id == plan(f"evaluated-{digest(layout)}").id
    assert client.get(f"/v1/plans/{plan_id}").status_code == 200
    assert client.get(f"/v1/plans/{plan_id}/exports/fake").status_code == 200


def test_illegal_is_an_answer(client):
    """200 with violations and no plan: CI asks exactly this."""
    document = evaluate(client, {"tp": 3}).json()
    assert document["verdict"] == "illegal"
    assert document["plan"] is None


def test_malformed_layouts_are_422(client):
    """With the pointer into the body."""
    response = evaluate(client, {"bad": 1})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/layout/bad"


@pytest.mark.parametrize("layout", [{"crash": True}, {"sleep_s": 60}])
def test_a_lost_child_is_replaced(client, layout):
    """422 for what cannot be evaluated here; the next call works."""
    response = evaluate(client, layout)
    assert response.status_code == 422
    assert response.json()["code"] == "too_large"
    assert evaluate(client, {"tp": 4}).status_code == 200


def test_waiting_evaluations_block_nothing_else(client):
    """While one evaluation computes and others wait, the rest of the service answers at once."""
    threads = [threading.Thread(target=evaluate, args=(client, {"sleep_s": 0.5, "n": number})) for number in range(4)]
    for thread in threads:
        thread.start()
    began_s = time.monotonic()
    for _ in range(20):
        assert client.get("/readyz").status_code == 200
    assert time.monotonic() - began_s < 1.5
    for thread in threads:
        thread.join()
