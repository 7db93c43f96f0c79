"""The real solver behind the service: refusals keep their pointers, answers are JSON texts made once."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest

from planner_service.problems import Problem
from planner_service.solver_adapter import RealSolver, put_at

PROBLEM = {
    "model": {"preset": "llama-3.1-8b"},
    "workload": {"sequence_lengths": {"constant": 4096}, "global_batch": {"sequences": 64}},
    "cluster": {"groups": [{"name": "a100", "device": "A100-SXM4-80", "nodes": 1}]},
    "framework": "megatron-core",
}
LAYOUT = {"tp": 4, "dp": 2, "recompute": "full", "zero": 1}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
}


@pytest.fixture
def solver():
    """The adapter."""
    return RealSolver()


def test_digests(solver):
    """Hex digests; spelling changes nothing, meaning does, `search` only the request."""
    one = solver.check(PROBLEM)
    spelled = {**PROBLEM, "framework": {"version": "latest-known", "name": "megatron-core"}}
    assert solver.check(spelled) == one
    other_search = solver.check({**PROBLEM, "search": {"work_limit": 7}})
    assert other_search.problem_digest == one.problem_digest
    assert other_search.request_digest != one.request_digest
    batch = {**PROBLEM["workload"], "global_batch": {"sequences": 128}}
    assert solver.check({**PROBLEM, "workload": batch}).problem_digest != one.problem_digest


def test_refusals_name_the_field(solver):
    """Pointer, code, what is allowed."""
    with pytest.raises(Problem) as refused:
        solver.check({**PROBLEM, "model": {"preset": "llama-3.1-8bb"}})
    assert refused.value.status == 422
    assert refused.value.errors[0].pointer == "/model/preset"
    with pytest.raises(Problem) as refused:
        solver.evaluate(PROBLEM, {"tpp": 4})
    assert refused.value.errors[0].pointer == "/layout/tpp"
    with pytest.raises(Problem) as refused:
        solver.evaluate({}, LAYOUT)
    assert refused.value.errors[0].pointer.startswith("/problem/")


def test_evaluate_then_export(solver):
    """A plan as stored can be exported later, and gives the same bytes each time."""
    answer = solver.evaluate(PROBLEM, LAYOUT)
    evaluation = orjson.loads(answer.evaluation)
    assert evaluation["verdict"] == "ok"
    assert evaluation["plan"]["id"] == answer.plan.id
    assert solver.evaluate(PROBLEM, LAYOUT) == answer
    export = orjson.loads(solver.export(answer.plan, "megatron-core"))
    assert export["framework"] == "megatron-core"
    assert export["files"][0]["content"]
    assert set(export) == {"framework", "version", "files", "command"}
    with pytest.raises(Problem) as refused:
        solver.export(answer.plan, "nothing")
    assert refused.value.status == 404


def test_import_hf_config(solver):
    """The sizes, usable as a model in a problem."""
    document = orjson.loads(solver.import_hf_config(LLAMA))
    assert document["kind"] == "hf-config"
    imported = solver.check({**PROBLEM, "model": document["model"]})
    assert imported == solver.check({**PROBLEM, "model": {"hf_config": LLAMA}})
    with pytest.raises(Problem):
        solver.import_hf_config({})


def test_catalogue(solver):
    """Devices, models and frameworks can be listed."""
    devices = orjson.loads(solver.devices())["devices"]
    assert "A100-SXM4-80" in {device["name"] for device in devices}
    assert "llama-3.1-8b" in {model["name"] for model in orjson.loads(solver.models())["models"]}
    frameworks = {item["name"]: item for item in orjson.loads(solver.frameworks())["frameworks"]}
    assert frameworks["megatron-core"]["exports"]
    assert not frameworks["any"]["exports"]


def test_checking_stays_light():
    """The process that only checks documents loads neither compiled kernels nor the integer programming solver."""
    program = (
        "import sys; from planner_service.app import create_app; from planner_service.solver_adapter import RealSolver;"
        f"create_app(); RealSolver().check({PROBLEM!r}); RealSolver().devices();"
        "print(sorted({'numba', 'ortools', 'llvmlite'} & set(sys.modules)))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


def test_put_at():
    """Changes are put where their pointers say; a shorthand on the way gives way to an object."""
    document = {"cluster": {"groups": [{"nodes": 1}]}, "workload": {"task": "pretrain"}}
    put_at(document, "/cluster/groups/0/nodes", 4)
    put_at(document, "/constraints/fixed/offload_optimizer", 1)
    put_at(document, "/workload/task/kind", "finetune")
    put_at(document, "/a~1b", 0)
    assert document == {
        "cluster": {"groups": [{"nodes": 4}]},
        "workload": {"task": {"kind": "finetune"}},
        "constraints": {"fixed": {"offload_optimizer": 1}},
        "a/b": 0,
    }
