"""The OpenAPI document: nothing breaks for clients of the golden file, its examples run, its schemas take what is taken."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import orjson
import pytest
from fastapi.testclient import TestClient

import solver
from planner_service.api.examples import LAYOUT, OTHER_LAYOUT, PROBLEM
from planner_service.app import create_app
from planner_service.solver_adapter import load_yaml
from tests.service.openapi_changes import GOLDEN, HINT, breaking_changes, current_document, text_of
from tests.service.openapi_schemas import Contract

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAIT = {"Prefer": "wait=60"}


@pytest.fixture(scope="module")
def document():
    """The document of this checkout."""
    return json.loads(orjson.dumps(current_document()))


@pytest.fixture(scope="module")
def golden():
    """The document that clients know."""
    return json.loads(GOLDEN.read_text())


@pytest.fixture
def real(settings):
    """A client of a service with the real solver."""
    roomy = {"search_max_time_s": 120.0, "search_max_memory_bytes": 16 * 2**30, "evaluation_max_time_s": 60.0}
    with TestClient(create_app(settings.model_copy(update=roomy)), raise_server_exceptions=False) as client:
        yield client


def test_nothing_breaks(document, golden):
    """Clients of the golden file go on working."""
    changes = breaking_changes(golden, document)
    assert not changes, "\n".join([*changes, HINT])


def test_the_golden_file_is_current(document):
    """Additions belong into the golden file too, or the next change of them would go unseen."""
    assert GOLDEN.read_text() == text_of(document), "The interface has grown. " + HINT


def remove(path, name):
    def change(document):
        place = document
        for part in path:
            place = place[part]
        if isinstance(place, list):
            place.remove(name)
        else:
            del place[name]

    return change


def put(path, name, value):
    def change(document):
        place = document
        for part in path:
            place = place[part]
        if isinstance(place, list):
            place.append(value)
        else:
            place[name] = value

    return change


SCHEMAS = ("components", "schemas")
SEARCHES = ("paths", "/v1/searches")
BREAKING = {
    "path": remove(("paths",), "/v1/devices"),
    "method": remove(("paths", "/v1/searches/{search_id}"), "patch"),
    "operation id": put((*SEARCHES, "post"), "operationId", "other"),
    "status": remove((*SEARCHES, "post", "responses"), "202"),
    "media type": remove(("paths", "/v1/searches/{search_id}/events", "get", "responses", "200", "content"), "text/event-stream"),
    "parameter": lambda document: document["paths"]["/v1/searches"]["get"]["parameters"].pop(),
    "required parameter": lambda document: document["paths"]["/v1/searches"]["get"]["parameters"][0].update(required=True),
    "request member": remove((*SCHEMAS, "Workload", "properties"), "truncate"),
    "required member": put((*SCHEMAS, "Problem", "required"), None, "framework"),
    "request value": remove((*SCHEMAS, "Workload", "properties", "precision", "enum"), "fp8"),
    "request alternative": lambda document: document["components"]["schemas"]["Problem"]["properties"]["framework"][
        "anyOf"
    ].pop(),
    "request bound": put((*SCHEMAS, "SearchOptions", "properties", "alternatives"), "maximum", 5),
    "new request bound": put((*SCHEMAS, "Group", "properties", "name"), "pattern", "^x"),
    "answer member": remove((*SCHEMAS, "Plan", "properties"), "warnings"),
    "promise": remove((*SCHEMAS, "Search", "required"), "progress"),
    "answer type": put((*SCHEMAS, "Prediction", "properties", "mfu"), "type", "string"),
    "answer null": put((*SCHEMAS, "Prediction", "properties", "mfu"), "type", ["number", "null"]),
    "answer value": remove((*SCHEMAS, "State", "enum"), "failed"),
}
HARMLESS = {
    "path": put(("paths",), "/v1/new", {"get": {"responses": {}}}),
    "optional request member": put((*SCHEMAS, "Workload", "properties"), "more", {"type": "string"}),
    "request value": put((*SCHEMAS, "Workload", "properties", "precision", "enum"), None, "fp4"),
    "wider bound": put((*SCHEMAS, "SearchOptions", "properties", "alternatives"), "maximum", 500),
    "answer member": put((*SCHEMAS, "Plan", "properties"), "more", {"type": "string"}),
    "answer value": put((*SCHEMAS, "State", "enum"), None, "paused"),
    "description": put((*SEARCHES, "post"), "description", "other words"),
}


@pytest.mark.parametrize("name", BREAKING)
def test_the_comparer_finds(golden, name):
    """Each kind of breaking change."""
    changed = copy.deepcopy(golden)
    BREAKING[name](changed)
    assert breaking_changes(golden, changed)


@pytest.mark.parametrize("name", HARMLESS)
def test_the_comparer_lets_pass(golden, name):
    """Additions."""
    changed = copy.deepcopy(golden)
    HARMLESS[name](changed)
    assert breaking_changes(golden, changed) == []


def test_the_document_is_sound(document):
    """Every reference leads somewhere, every schema is one, every operation has an id, a summary and its refusals."""
    names = set(document["components"]["schemas"])
    text = json.dumps(document)
    assert set(part.split('"')[0] for part in text.split("#/components/schemas/")[1:]) <= names
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert {"406", "422", "500"} <= set(operation["responses"])


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_example_problems_are_problems(document, file):
    """What the solver takes, the schema takes, shorthands included."""
    problem = load_yaml(file.read_bytes())
    solver.parse_problem(problem)
    assert Contract(document).component_complaint("Problem", json.loads(json.dumps(problem))) is None


@pytest.mark.parametrize(
    "change",
    [
        {"framework": {"name": "any"}},
        {"objective": "step_time"},
        {"search": {"alternatives": 0, "time_limit_s": None}},
        {"constraints": {"fixed": {"tp": 2}, "allowed": {"pp": 1, "dp": [1, 2]}}},
    ],
)
def test_schema_and_solver_agree(document, change):
    """Both take these."""
    problem = {**PROBLEM, **change}
    solver.parse_problem(problem)
    assert Contract(document).component_complaint("Problem", problem) is None


def test_the_examples_run(real, document):
    """Every operation is called with its examples (ids of what was made instead of those shown) and answers as documented."""
    contract = Contract(document)
    called = set()

    def call(path, method, headers=None, body=None, file=None, **names):
        called.add((path, method))
        if file is None and body is None and "requestBody" in contract.operation(path, method):
            body = contract.operation(path, method)["requestBody"]["content"]["application/json"]["example"]
        if body is not None:
            assert contract.body_complaint(path, method, body) is None
        sent = {"json": body} if file is None else {"content": file}
        response = real.request(method.upper(), path.format(**names), headers=headers, **sent)
        media = response.headers.get("content-type", "").partition(";")[0]
        content = response.json() if media.endswith("json") else response.text
        assert response.status_code < 400, content
        assert contract.complaint(path, method, response.status_code, media, content) is None
        return content

    for path in ("/healthz", "/readyz", "/metrics", "/v1/devices", "/v1/models", "/v1/frameworks"):
        call(path, "get")
    search = call("/v1/searches", "post", headers=WAIT)
    while search["state"] not in ("done", "failed"):
        search = call("/v1/searches/{search_id}", "get", headers=WAIT, search_id=search["id"])
    assert search["result"]["status"] == "optimal"
    plan_id = search["result"]["plan"]["id"]
    call("/v1/searches", "get")
    call("/v1/searches/{search_id}", "get", search_id=search["id"])
    call("/v1/searches/{search_id}/events", "get", search_id=search["id"])
    call("/v1/searches/{search_id}:cancel", "post", search_id=search["id"])
    call("/v1/searches/{search_id}", "patch", search_id=search["id"])
    call("/v1/plans/{plan_id}", "get", plan_id=plan_id)
    framework = contract.operation("/v1/plans/{plan_id}/exports/{framework}", "get")["parameters"][1]["example"]
    call("/v1/plans/{plan_id}/exports/{framework}", "get", plan_id=plan_id, framework=framework)
    timeline = call("/v1/plans/{plan_id}/timeline", "get", plan_id=plan_id)
    assert timeline["operations"]
    assert timeline["step_time_s"] == pytest.approx(search["result"]["plan"]["prediction"]["step_time_s"], rel=5e-3)
    evaluated = [
        call("/v1/evaluations", "post", body={"problem": PROBLEM, "layout": layout})["plan"]["id"]
        for layout in (LAYOUT, OTHER_LAYOUT)
    ]
    call("/v1/evaluations", "post")
    comparison = call("/v1/comparisons", "post", body={"plans": [plan_id, *evaluated]})
    assert comparison["fastest"] == plan_id
    assert comparison["same_problem"]
    for plan in comparison["plans"]:
        assert sum(plan["time_difference_s"].values()) == pytest.approx(
            plan["step_time_s"] * plan["slower_by_fraction"] / (1 + plan["slower_by_fraction"]), abs=1e-6 * plan["step_time_s"]
        )
    call("/v1/imports/hf-config", "post")
    call("/v1/imports/lengths", "post", file=b"4096\n300\n")
    profile = call("/v1/calibrations", "post")
    assert call("/v1/profiles/{name}", "get", name=profile["name"]) == profile
    call("/v1/profiles", "get")
    call("/v1/searches/{search_id}", "delete", search_id=search["id"])
    assert called == {(path, method) for path, operations in document["paths"].items() for method in operations}
