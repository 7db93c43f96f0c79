"""Random requests to a real server: no 5xx, no answer outside its schema, and the server lives on."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from planner_service.solver_port import DEFAULT_SOLVER
from tests.fuzz.campaign import SERVER, Answer, Campaign, Progress, complaint, read_progress
from tests.fuzz.requests import Known, Request, Requests
from tests.service.openapi_changes import current_document
from tests.service.openapi_schemas import Contract
from tests.service.servers import running_server

SEED = 20261130


@pytest.fixture(scope="module")
def document():
    """The OpenAPI document."""
    return json.loads(json.dumps(current_document()))


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=[pytest.mark.ci, pytest.mark.timeout(900)])])
def test_random_requests(document, tmp_path, count):
    """Every answer is as documented."""
    with running_server(f"sqlite:///{tmp_path / 'fuzz.db'}", solver_name=DEFAULT_SOLVER, **SERVER) as (url, process):
        campaign = Campaign(url, document, Progress(SEED))
        asyncio.run(campaign.run(count))
        assert campaign.findings == []
        assert process.poll() is None
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200


def test_requests_follow_from_their_numbers(document):
    """The same number, the same bytes; and most kinds of operation come early."""
    first, second = Requests(document, 5), Requests(document, 5)
    known = Known(["0" * 26], ["0" * 64])
    made = [first.number(index, known) for index in range(1500)]
    assert [request.payload for request in made] == [second.number(index, known).payload for index in range(1500)]
    assert made != [Requests(document, 6).number(index, known) for index in range(1500)]
    asked = {request.operation for request in made}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} <= asked


def test_a_campaign_goes_on_where_it_was(document, tmp_path):
    """The state file says how far it got."""
    state = tmp_path / "state.json"
    assert read_progress(state, 3) == Progress(3)
    state.write_text('{"seed": 3, "done": 640, "seconds": 9.5, "statuses": {"200": 5}, "findings": 1}')
    assert read_progress(state, 3) == Progress(3, 640, 9.5, {"200": 5}, 1)
    with pytest.raises(AssertionError):
        read_progress(state, 4)


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (("/healthz", "get"), None),
        (("/healthz", "get"), Answer(500, "application/problem+json", b"{}")),
        (("/healthz", "get"), Answer(418, "application/json", b"{}")),
        (("/healthz", "get"), Answer(200, "text/html", b"<p>")),
        (("/healthz", "get"), Answer(200, "application/json", b'{"status":"well"}')),
        (("/healthz", "get"), Answer(406, "application/problem+json", b'{"status":406}')),
        (("/v1/searches/{search_id}", "delete"), Answer(204, "", b"x")),
        (None, Answer(404, "text/plain", b"Not Found")),
    ],
)
def test_wrong_answers_are_found(document, operation, answer):
    """The checks can fail."""
    assert complaint(Contract(document), Request(b"", operation), answer)
