"""Shards of whole rows: the largest one, by hand and recounted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.certify import shards as recount
from solver.certify.tensors import Grid
from solver.cost.architecture import architecture
from solver.cost.shards import expert_excess, row_excess
from tests.solver.sample_layouts import sample_problem
from tests.solver.test_certify_memory import MODELS

PLAIN = sample_problem()


def ours(ranks: int, tp: int = 1) -> float:
    shape = architecture(PLAIN.transformer)
    return float(row_excess(shape, np.array([tp]), np.array([ranks]), 1.0)[0])


@pytest.mark.parametrize("ranks", [1, 2, 8, 64, 256])
def test_shards_that_divide_are_equal(ranks: int) -> None:
    assert ours(ranks) == 1.0


def test_the_largest_shard_by_hand() -> None:
    """96 ranks: 4,096 rows make 43 (42.7), 1,024 make 11 (10.7), 14,336 make 150 (149.3), 32,000 make 334 (333.3)."""
    layer = 43 * 4096 + 2 * 11 * 4096 + 43 * 4096 + 2 * 150 * 4096 + 43 * 14336
    whole = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336
    largest = 8 * layer + 2 * 334 * 4096
    assert ours(96) == pytest.approx(96 * largest / (8 * whole + 2 * 32000 * 4096))


def test_more_ranks_than_rows_leave_one_row() -> None:
    assert ours(65536) > 2.0


@given(
    document=st.sampled_from(MODELS),
    tp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4]),
    etp=st.sampled_from([1, 2]),
    ranks=st.integers(1, 3000),
)
@settings(max_examples=150, deadline=None)
def test_the_certificate_counts_the_same(document: dict[str, object], tp: int, ep: int, etp: int, ranks: int) -> None:
    model = sample_problem(document).transformer
    shape, grid = architecture(model), Grid(tp, 1, ep, etp, False, 1, 1.0, 2, 1.0, 128)
    one = [np.array([value]) for value in (tp, ep, etp, ranks)]
    assert row_excess(shape, one[0], one[3], 128.0)[0] == pytest.approx(recount.row_excess(model, grid, ranks))
    assert expert_excess(shape, one[1], one[2], one[3])[0] == pytest.approx(recount.expert_excess(model, grid, ranks))
