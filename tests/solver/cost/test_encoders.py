"""Modules before the language model: loads, parameters, time and bytes on the first stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.cost import columns as col
from solver.cost.encoder_loads import IMAGE_TOKENS, encoder_loads
from solver.cost.encoders import encoder_flops_per_row, encoder_notes, gradients_pass
from solver.cost.operators import Points
from solver.cost.table import cost_model
from solver.problem import Problem, normalise, parameter_count, parse_problem
from tests.solver.modules import document, problem


def points(tp: tuple[int, ...] = (1,), mbs: int = 1) -> Points:
    """Points of these tensor degrees."""
    one = np.ones(len(tp), dtype=np.int64)
    degrees = np.array(tp, dtype=np.int64)
    parallel = (degrees > 1).astype(np.int64)
    return Points(tp=degrees, cp=one, cp_kind=0 * one, ep=one, etp=one, mbs=mbs * one, sp=parallel, row_tokens=1024)


def row(of: Problem, **where: Any) -> np.ndarray:
    """The point table."""
    found: np.ndarray = cost_model(of).point_tables(0, points(**where))[1]
    return found


def test_loads_without_samples_are_an_upper_bound() -> None:
    """All 1,024 tokens of a row from 4 patches each; an image has as many patches as the tower has positions."""
    (load,) = encoder_loads(problem())
    assert (load.mean_tokens, load.most_tokens, load.unit_tokens) == (4096.0, 4096.0, 256)
    assert "every token is taken" in " ".join(encoder_notes(problem()))
    content = document()
    del content["model"]["modules"][0]["transformer"]["learned_positions"]
    assert encoder_loads(normalise(parse_problem(content)))[0].unit_tokens == IMAGE_TOKENS


def test_loads_of_samples() -> None:
    """Packed rows hold samples in their proportion; padded rows one sample; memory takes the worst."""
    tokens, language = 300 * 1024 + 500 * 256, 300 * 356 + 500 * 104 + 200 * 512
    (packed,) = encoder_loads(problem(samples=True))
    assert packed.mean_tokens == pytest.approx(1024 * tokens / language)
    assert packed.most_tokens == pytest.approx(1024 * 1024 / 356)
    assert packed.unit_tokens == round((300 * 1024**2 + 500 * 256**2) / tokens)
    (padded,) = encoder_loads(problem(samples=True, batching="padded"))
    assert (padded.mean_tokens, padded.most_tokens) == (pytest.approx(tokens / 1000), 1024)
    _, projector = encoder_loads(problem(samples=True, projector=True))
    assert projector.mean_tokens == pytest.approx(packed.mean_tokens / 4)


def test_parameters_are_those_of_the_count() -> None:
    """Whole at tp 1; trained ones join the embedding, frozen ones have a column of their own."""
    frozen, trained = problem(), problem(trainable=True)
    tower = frozen.encoders[0].transformer
    assert tower is not None
    count = parameter_count(tower)
    still, moving = row(frozen)[0], row(trained)[0]
    assert still[col.FROZEN_PARAMETERS] == still[col.ENCODER_PARAMETERS] == count
    assert moving[col.FROZEN_PARAMETERS] == 0
    assert moving[col.ENCODER_PARAMETERS] == count
    assert moving[col.EMBEDDING_PARAMETERS] - still[col.EMBEDDING_PARAMETERS] == count


def test_split_where_it_divides() -> None:
    """4 heads: shared by 2 and 4 tensor ranks, whole on each of 8."""
    table = row(problem(), tp=(1, 2, 4, 8))
    whole, half, quarter, eighth = table[:, col.ENCODER_PARAMETERS]
    assert quarter < half < whole
    assert eighth == whole


def test_frozen_runs_forward_only() -> None:
    """A trained tower adds a backward that rebuilds the layers, and keeps their inputs."""
    still, moving = row(problem())[0], row(problem(trainable=True))[0]
    assert moving[col.EMBEDDING_FORWARD] == still[col.EMBEDDING_FORWARD]
    forward = still[col.EMBEDDING_FORWARD] - still[col.EMBEDDING_BACKWARD]  # what the tower adds: lookup takes both alike
    assert forward > 0
    assert moving[col.EMBEDDING_BACKWARD] - still[col.EMBEDDING_BACKWARD] > 2 * forward
    assert moving[col.ENCODER_SAVED] > still[col.ENCODER_SAVED] > 0
    assert moving[col.ENCODER_WORK] == 2 * still[col.ENCODER_WORK]


def test_costs_grow_with_the_micro_batch() -> None:
    """Twice the rows: twice the bytes, not more than twice the seconds."""
    one, two = row(problem(trainable=True))[0], row(problem(trainable=True), mbs=2)[0]
    for column in (col.ENCODER_SAVED, col.ENCODER_WORK):
        assert two[column] == pytest.approx(2 * one[column])
    assert one[col.EMBEDDING_FORWARD] < two[col.EMBEDDING_FORWARD] <= 2 * one[col.EMBEDDING_FORWARD]


def test_gradients_pass_through_what_is_frozen() -> None:
    """A frozen projector behind a trained tower has a backward of its own."""
    content = document(projector=True, trainable=True)
    content["model"]["modules"][1]["trainable"] = False
    passing = normalise(parse_problem(content))
    vision, projector = passing.encoders
    assert not gradients_pass(passing, vision)
    assert gradients_pass(passing, projector)
    trained, alone = row(problem(projector=True, trainable=True))[0], row(problem(projector=True))[0]
    through = row(passing)[0]
    assert alone[col.EMBEDDING_BACKWARD] < through[col.EMBEDDING_BACKWARD] < trained[col.EMBEDDING_BACKWARD]


def test_model_flops() -> None:
    """2 FLOPs a weight and token forward; three times that when trained."""
    forward = encoder_flops_per_row(problem())
    assert encoder_flops_per_row(problem(trainable=True)) == pytest.approx(3 * forward)
    tower = problem().encoders[0].transformer
    assert tower is not None
    weights = 588 * 256 + 4 * (4 * 256 * 256 + 2 * 256 * 1024) + (512 * 512 + 512 * 512) / 4
    scores = 3 * 4 * 256 * 256 + 4 * 64 * 256
    assert forward == pytest.approx(4096 * (2 * weights + scores))
