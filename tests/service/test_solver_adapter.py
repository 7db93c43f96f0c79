"""The real solver behind the service: refusals keep their pointers, answers are JSON texts made once."""

from __future__ import annotations

import copy
import dataclasses
import random
import subprocess
import sys

import orjson
import pytest

from planner_service.problems import Problem
from planner_service.solver_adapter import RealSolver

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
    direct = solver.check({**PROBLEM, "model": {"hf_config": LLAMA}})
    assert (imported.model, direct.model) == ("custom", "llama")
    assert imported == dataclasses.replace(direct, model="custom")
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
        "import sys; import planner_service.cli; from planner_service.app import create_app;"
        "from planner_service.solver_adapter import RealSolver;"
        f"create_app(); RealSolver().check({PROBLEM!r}); RealSolver().devices();"
        "print(sorted({'numba', 'ortools', 'llvmlite'} & set(sys.modules)))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


WEIRD = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    2**53,
    2**63 - 1,
    1e25,
    "",
    "x",
    "1e5",
    "é☃",
    "a" * 300,
    [],
    {},
    [[]],
    [None],
    [[1, 2]],
    {"kind": "x"},
]


def paths(value, path=()):
    """Every place in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def damaged(document, generator):
    """A copy with one to three places replaced or removed."""
    document = copy.deepcopy(document)
    for _ in range(generator.randrange(1, 4)):
        path = generator.choice([*paths(document), ("extra",)])
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        if generator.random() < 0.2 and path[-1] != "extra":
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(generator.choice(WEIRD))
    return document


def outcome(call, *arguments):
    """What a call returns, or the problem it raises."""
    try:
        return call(*arguments)
    except Problem as refused:
        return refused


def check_refusal(refused):
    """422 with pointers, in text."""
    assert refused.status == 422
    assert refused.errors
    assert orjson.loads(refused.text())["code"]


def test_damaged_problems_are_refused(solver):
    """A thousand of them: accepted or refused with pointers, never an error of ours."""
    generator = random.Random(3)
    for _ in range(1000):
        got = outcome(solver.check, damaged(PROBLEM, generator))
        if isinstance(got, Problem):
            check_refusal(got)


def test_damaged_layouts_are_refused(solver):
    """The same for layouts, in classical words and in full."""
    generator = random.Random(4)
    full = orjson.loads(solver.evaluate(PROBLEM, LAYOUT).evaluation)["plan"]["layout"]
    for _ in range(300):
        got = outcome(solver.evaluate, PROBLEM, damaged(generator.choice([LAYOUT, full, full]), generator))
        if isinstance(got, Problem):
            check_refusal(got)
        else:
            assert orjson.loads(got.evaluation)["verdict"] in ("ok", "illegal", "does_not_fit")
