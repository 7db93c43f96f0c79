"""The JSON schema of the problem, which the API shows."""

from __future__ import annotations

import pickle

from solver.problem import Problem, normalise, parse_problem
from tests.solver.problem.documents import mixed


def test_schema_covers_the_contract() -> None:
    """Every section is there; what the catalogue fills has no default of its own."""
    schema = Problem.model_json_schema()
    assert set(schema["properties"]) == {
        "model",
        "workload",
        "cluster",
        "objective",
        "framework",
        "constraints",
        "search",
        "running",
    }
    assert "default" not in schema["$defs"]["Group"]["properties"]["devices_per_node"]
    assert schema["$defs"]["Cluster"]["properties"]["groups"]["maxItems"] == 64
    assert schema["$defs"]["ModuleInput"]["required"] == ["from"]


def test_problems_cross_process_boundaries() -> None:
    """A search runs in a child process."""
    problem = normalise(parse_problem(mixed()))
    assert pickle.loads(pickle.dumps(problem)) == problem
