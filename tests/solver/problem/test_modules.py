"""Models of several modules: completed, checked as a chain into the last, with joint samples."""

from __future__ import annotations

from typing import Any

import pytest

from solver import catalog
from solver.problem import count_model_parameters, normal_form, parse_problem, problem_digest
from tests.solver.importers.configs import QWEN2_5_VL
from tests.solver.modules import PROJECTOR, document, problem
from tests.solver.problem.documents import changed, small
from tests.solver.problem.refusals import findings


def test_presets_and_configs_become_modules() -> None:
    """The tower and the language model of a preset, with every default filled."""
    parsed = parse_problem(small(model={"preset": "qwen2.5-vl-7b"}, framework="any"))
    assert [module.name for module in parsed.encoders] == ["vision"]
    assert parsed.transformer.hidden_size == 3584
    tower = parsed.encoders[0].transformer
    assert tower is not None
    assert tower.blocks[0].norms == 2
    config = small(model={"hf_config": QWEN2_5_VL}, **{"workload.sequence_lengths": {"constant": 64}})
    assert parse_problem(config).encoders[0].name == "vision"


def test_a_preset_and_its_modules_ask_the_same() -> None:
    """Names of presets are replaced by their content."""
    by_name = parse_problem(small(model={"preset": "qwen2.5-vl-7b"}))
    written = parse_problem(small(model=catalog.find_model("qwen2.5-vl-7b").model))
    assert problem_digest(by_name) == problem_digest(written)
    frozen = catalog.find_model("qwen2.5-vl-7b").model["modules"]
    other = {"modules": [{**frozen[0], "trainable": False}, frozen[1]]}
    assert problem_digest(parse_problem(small(model=other))) != problem_digest(by_name)
    assert count_model_parameters(written.model.model_dump(by_alias=True, exclude_none=True)).total == 8_292_166_656


@pytest.mark.parametrize("changes", [{}, {"samples": True}, {"projector": True, "samples": True}, {"trainable": True}])
def test_the_normal_form_asks_the_same(changes: dict[str, Any]) -> None:
    """And is taken again; order of samples makes no difference."""
    first = problem(**changes)
    assert problem_digest(parse_problem(normal_form(first))) == problem_digest(first)
    if changes.get("samples"):
        turned = document(**changes)
        turned["workload"]["sequence_lengths"]["samples"].reverse()
        assert problem_digest(parse_problem(turned)) == problem_digest(first)


def test_samples_give_the_lengths_of_the_last_module() -> None:
    """Its own tokens, and a quarter of the vision tokens."""
    lengths = problem(samples=True).workload.sequence_lengths
    assert lengths.counts == ((104, 500), (356, 300), (512, 200))
    through = problem(samples=True, projector=True).workload.sequence_lengths
    assert through.counts == lengths.counts


def test_the_longest_sample_is_the_default_row() -> None:
    """Without max_sequence_length."""
    content = document(samples=True)
    del content["workload"]["max_sequence_length"]
    assert parse_problem(content).workload.max_sequence_length == 512


SAMPLES = "samples"
VISION_ONLY = {"name": "a", "transformer": {"hidden_size": 64, "blocks": [{"mlp": {"kind": "dense", "hidden_size": 64}}]}}


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"model.modules.1.inputs": []}, "/model/modules/0/name", "conflict"),
        ({"model.modules.1.inputs": [{"from": "audio"}]}, "/model/modules/1/inputs/0/from", "unknown_name"),
        ({"model.modules.0.inputs": [{"from": "language"}]}, "/model/modules/0/inputs/0/from", "unknown_name"),
        ({"model.modules.1.name": "vision"}, "/model/modules/1/name", "conflict"),
        ({"model.modules.1.trainable": False}, "/model/modules/1/trainable", "not_supported"),
        ({"model.modules": [VISION_ONLY]}, "/model/modules/0", "not_supported"),
        ({"model.modules.0": {"name": "vision", "preset": "gpt2"}}, "/model/modules/0", "not_supported"),
        ({"model.modules.0": {"name": "vision", "preset": "qwen2.5-vl-7b"}}, "/model/modules/0", "not_supported"),
        ({"model.modules.1": {"name": "language", "preset": "gtp2"}}, "/model/modules/1/preset", "unknown_name"),
        ({"framework": "megatron-core"}, "/framework", "not_supported"),
        ({SAMPLES: [[{"audio": 3}, 1]]}, "/workload/sequence_lengths/samples/0/0/audio", "unknown_name"),
        ({SAMPLES: [[{"vision": 0}, 1]]}, "/workload/sequence_lengths/samples/0", "out_of_range"),
    ],
)
def test_modules_that_do_not_fit_together_are_refused(changes: dict[str, Any], pointer: str, code: str) -> None:
    """By the field at fault."""
    content = document()
    if SAMPLES in changes:
        content["workload"]["sequence_lengths"] = changes
    else:
        content = changed(content, changes)
    assert (pointer, code) in findings(content)


@pytest.mark.parametrize(
    ("field", "value"), [("costs", [{"device": "A100-SXM4-80", "forward_s": 1.0, "backward_s": 1.0}]), ("inputs", ["mlp"])]
)
def test_operators_of_a_module_are_a_chain_by_formulas(field: str, value: Any) -> None:
    """What is not honoured is named."""
    content = document(projector=True)
    content["model"]["modules"][1]["layers"]["operators"][0][field] = value
    assert (f"/model/modules/1/layers/operators/0/{field}", "not_supported") in findings(content)


def test_samples_belong_to_several_modules() -> None:
    """One model takes other forms of lengths."""
    found = findings(small(**{"workload.sequence_lengths": {"samples": [[{"model": 64}, 1]]}}))
    assert ("/workload/sequence_lengths/samples", "conflict") in found
    assert PROJECTOR["name"] == "projector"
