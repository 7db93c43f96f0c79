"""The client of the HTTP interface against a running server."""

from __future__ import annotations

import orjson
import pytest

from planner_service.client import PlannerClient, ServiceUnreachable
from planner_service.problems import Problem


@pytest.fixture
def service(live_server):
    """A client of a server in a process of its own."""
    with PlannerClient(live_server, timeout_s=60.0) as made:
        yield made


def test_a_search_from_beginning_to_deletion(service, problem):
    """Every call answers what the interface says."""
    first = orjson.loads(service.create_search(problem(steps=2, step_s=0.3), wait_s=0, label="mine"))
    assert first["label"] == "mine"
    kinds, last = [], None
    for number, kind, data in service.events(first["id"]):
        assert isinstance(number, int)
        kinds.append(kind)
        last = data
    assert kinds[-1] == "done"
    assert last["state"] == "done"
    assert list(service.events(first["id"], after=10**6)) == []
    edited = orjson.loads(service.edit(first["id"], tags=["a"]))
    assert (edited["label"], edited["tags"]) == ("mine", ["a"])
    listed = orjson.loads(service.searches(tag="a", limit=5))["searches"]
    assert [item["id"] for item in listed] == [first["id"]]
    plans = [last["result"]["plan"]["id"], last["result"]["alternatives"][0]["plan_id"]]
    assert orjson.loads(service.compare(plans))["fastest"] in plans
    assert orjson.loads(service.timeline(plans[0], scenario=0))["plan_id"] == plans[0]
    service.delete(first["id"])
    with pytest.raises(Problem) as gone:
        service.search(first["id"])
    assert gone.value.status == 410


def test_refusals_come_back_as_they_were(service):
    """With code, pointer and what is allowed."""
    with pytest.raises(Problem) as refused:
        service.searches(state="resting")
    assert refused.value.code == "invalid_parameter"
    assert "queued" in refused.value.errors[0].allowed
    with pytest.raises(Problem) as unknown:
        list(service.events("x"))
    assert unknown.value.status == 404


def test_nobody_there():
    """Not a refusal."""
    with PlannerClient("http://127.0.0.1:9", timeout_s=2.0) as nobody, pytest.raises(ServiceUnreachable):
        list(nobody.events("x"))
