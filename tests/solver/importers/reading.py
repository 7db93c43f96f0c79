"""Reading a config in a test: the model, the language transformer, or why it was refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from solver.errors import InvalidProblem
from solver.importers import import_hf_config
from solver.problem import Model, Transformer

CONFIGS = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).resolve().parents[3] / "../shared")) / "data/hf_configs"


def model(config: dict[str, Any]) -> Model:
    """What was understood, validated."""
    return Model.model_validate(import_hf_config(config).model)


def sizes(config: dict[str, Any]) -> Transformer:
    """The (language) transformer of a config."""
    read = model(config)
    transformer = read.modules[-1].transformer if read.modules else read.transformer
    assert transformer is not None
    return transformer


def layers(config: dict[str, Any]) -> list[Any]:
    """(attention, feed-forward) of each layer in order."""
    return [(block.attention, block.mlp) for block in sizes(config).blocks for _ in range(block.repeat)]


def warnings(config: dict[str, Any]) -> str:
    """All warnings in one text."""
    return "\n".join(import_hf_config(config).warnings)


def refused(config: dict[str, Any]) -> set[tuple[str, str]]:
    """(pointer, code) of each error."""
    with pytest.raises(InvalidProblem) as caught:
        import_hf_config(config)
    return {(error.pointer, error.code) for error in caught.value.errors}
