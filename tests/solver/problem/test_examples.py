"""The canonical examples beside the repository, when they are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from solver.errors import InvalidProblem
from solver.problem import load_document, normal_form, parse_problem, problem_digest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = Path(os.environ.get("PLANNER_SHARED_DIR", ROOT / "../shared")) / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="no shared examples (PLANNER_SHARED_DIR)")

TAKEN = ("deepseek-v3-256-h100", "finetune-8-a100-40", "llama-3.1-70b-mixed", "vision-language-16-a100")
NOT_YET = {
    "lora-8-a100-40": {"/workload/task/kind", "/constraints/allowed/offload_activations"},
    "measured-layers-8-a100": {"/model/layers"},
    "replan-lost-node": {"/running"},
}


def document(name: str) -> dict[str, object]:
    """The example of that name."""
    return load_document((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"), "yaml")


@pytest.mark.parametrize("name", TAKEN)
def test_examples_are_taken(name: str) -> None:
    """They parse, and their normal form asks the same."""
    problem = parse_problem(document(name))
    assert problem_digest(parse_problem(normal_form(problem))) == problem_digest(problem)


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_examples_beyond_this_version_are_refused_by_pointer(name: str) -> None:
    """Their shape is understood; what cannot be honoured is named and nothing else is wrong."""
    with pytest.raises(InvalidProblem) as caught:
        parse_problem(document(name))
    assert {error.code for error in caught.value.errors} == {"not_supported"}
    assert {error.pointer for error in caught.value.errors} == NOT_YET[name]
