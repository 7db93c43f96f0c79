"""`planner import hf-config`: parameters by part, infinities that Python writes, a table on the terminal."""

from __future__ import annotations

import json

import orjson
import pytest
from rich.console import Console

from planner_service.body import parse_json
from planner_service.cli.inputs import load_document
from planner_service.cli.render_other import render_import
from planner_service.problems import Problem
from planner_service.solver_adapter import RealSolver
from tests.solver.importers.configs import DEEPSEEK_V3, NEMOTRON_H, QWEN2_5_VL


def imported(config):
    """The answer as a document."""
    return orjson.loads(RealSolver().import_hf_config(config))


def test_parameters_by_part():
    """Total without prediction layers, active without idle experts, the parts under their names."""
    document = imported(DEEPSEEK_V3)
    assert set(document) == {"kind", "model", "parameters", "warnings"}
    parameters = document["parameters"]
    parts = parameters["parts"]
    assert set(parts) == {"embedding", "attention", "dense_mlp", "experts", "head", "norms", "mtp", "vision"}
    assert parameters["total"] == sum(parts.values()) - parts["mtp"]
    assert parameters["active"] == parameters["total"] - 3 * 12 * 3 * 64 * 32
    assert parts["mtp"] > 0


def test_vision_apart():
    """The tower is a module and a part."""
    document = imported(QWEN2_5_VL)
    assert [module["name"] for module in document["model"]["modules"]] == ["vision", "language"]
    parameters = document["parameters"]
    assert parameters["active"] == parameters["total"] - parameters["parts"]["vision"]


def test_infinities_of_python_do_not_hide_the_config(tmp_path):
    """`time_step_limit: [0.0, Infinity]` is read where configs are read, and nowhere else."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(NEMOTRON_H), encoding="utf-8")
    assert "Infinity" in file.read_text(encoding="utf-8")
    assert imported(load_document(str(file), foreign=True))["parameters"]["total"] > 0
    problem = tmp_path / "problem.yaml"
    problem.write_text("model: {hf_config: config.json}\n", encoding="utf-8")
    assert load_document(str(problem))["model"]["hf_config"]["model_type"] == "nemotron_h"
    with pytest.raises(Problem):
        load_document(str(file))
    with pytest.raises(Problem):
        parse_json(b'{"a": NaN}')


def test_infinities_over_http(client):
    """The body of the import may hold them."""
    body = json.dumps(NEMOTRON_H)
    answer = client.post("/v1/imports/hf-config", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert "Infinity" not in answer.text


@pytest.mark.parametrize("config", [DEEPSEEK_V3, NEMOTRON_H, QWEN2_5_VL])
def test_table_on_the_terminal(config):
    """Every kind of layer and every part that is there."""
    out, errors = Console(record=True, width=120), Console(record=True, width=120, stderr=True)
    document = imported(config)
    render_import(out, errors, document)
    text = out.export_text()
    assert f"{document['parameters']['total']:,}" in text
    assert ("(not in the total)" in text) is (document["parameters"]["parts"]["mtp"] > 0)
    assert "note" in errors.export_text()
