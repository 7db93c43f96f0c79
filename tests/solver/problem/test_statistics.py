"""Mean lengths and the number of draws."""

from __future__ import annotations

import math
import random

import pytest

from solver.problem import SequenceLengths, mean_tokens, parse_problem
from solver.problem.statistics import expected_draws, expected_rows
from tests.solver.problem.documents import mixed, small


def test_mean_of_counts_is_cut() -> None:
    """Lengths above the limit count as the limit."""
    lengths = SequenceLengths.model_validate({"counts": [[10, 3], [100, 1]]})
    assert mean_tokens(lengths, 50) == pytest.approx((3 * 10 + 50) / 4)


def test_mean_of_histogram_takes_upper_edges() -> None:
    """Bins are (lo, hi] and stand at hi."""
    lengths = SequenceLengths.model_validate({"histogram": {"edges": [0, 10, 20], "counts": [1, 3]}})
    assert mean_tokens(lengths, 1000) == pytest.approx((10 + 60) / 4)


def test_mean_of_lognormal_agrees_with_draws() -> None:
    """The closed form against a million draws."""
    lengths = SequenceLengths.model_validate({"lognormal": {"median": 900, "sigma": 1.1, "max": 8192}})
    rng = random.Random(1)
    drawn = [min(8192.0, math.exp(rng.gauss(math.log(900), 1.1))) for _ in range(200_000)]
    assert mean_tokens(lengths, 8192) == pytest.approx(sum(drawn) / len(drawn), rel=0.01)


def test_rows() -> None:
    """Rows of a token batch: packs of the longest length, or padded documents."""
    tokens = mixed(**{"workload.global_batch": {"tokens": 32768 * 10}})
    assert expected_rows(parse_problem(tokens).workload) == 10
    padded = parse_problem({**tokens, "workload": {**tokens["workload"], "batching": "padded"}}).workload
    assert expected_rows(padded) == pytest.approx(327680 / mean_tokens(padded.sequence_lengths, 32768))


def test_draws() -> None:
    """Packs hold several documents; a constant length is not drawn."""
    assert expected_draws(parse_problem(small()).workload) == 0
    workload = parse_problem(mixed()).workload
    assert expected_draws(workload) == pytest.approx(8 * 128 * 32768 / mean_tokens(workload.sequence_lengths, 32768))
