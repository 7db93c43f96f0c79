"""A space that is laid out in many blocks, with early incumbents, has the answer of the same space in one piece."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import solver
from solver.search.session import open_session
from tests.oracle.problems import random_problem

SEEDS = range(40, 52)


def outcome(problem: Any) -> tuple[Any, ...]:
    result = solver.search(problem).result
    cells = result.certificate.cells
    best = result.plan.prediction.step_time_s if result.plan else None
    return result.status, best, result.certificate.space.count, cells.total, cells.open


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_do_not_change_the_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, most_layouts=20_000)
    whole = outcome(problem)
    monkeypatch.setattr(sys.modules["solver.search.space"], "BLOCK", 16)
    monkeypatch.setattr(sys.modules["solver.search.driver"], "EXHAUST_CELLS", 0)
    assert outcome(problem) == whole


def test_no_average_bound_is_above_a_price() -> None:
    checked = 0
    for seed in SEEDS:
        session = open_session(solver.normalise(random_problem(seed, most_layouts=20_000)))
        driver = session.driver(lambda: False, lambda progress: None)
        cells = session.space.cells
        if not len(cells):
            continue
        bounds = driver.average_bounds(cells)
        cells, bounds = cells.take(bounds > 0.0), bounds[bounds > 0.0]
        weight = driver.weight(cells)
        variants = session.pricer.price(cells, weight, np.inf)
        priced = np.isfinite(variants.seconds)
        value = (variants.seconds * weight[variants.cell])[priced]
        assert (bounds[variants.cell][priced] <= value * (1.0 + 1e-9)).all()
        checked += int(priced.sum())
    assert checked > 100
