"""Timed cuts: least slowest stage, first stage full; the recount of replays gives the same cuts; no cut is in the space twice."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from solver.dimensions.layers import balanced_bounds, first_full_bounds
from solver.frameworks import get_rule_set
from solver.replay.options import Options
from solver.replay.space import Cell, stated_cells
from solver.replay.splits import split_bounds
from solver.search.cells import UNIFORM
from solver.search.grid import BALANCED, EVEN, SPLITS, TIMED
from solver.search.session import open_session
from tests.solver.sample_layouts import LLAMA_LIKE, group, sample_model, sample_problem

MIXTURE = {"kind": "moe", "hidden_size": 2048, "gated": True, "experts": 8, "top_k": 4}


def loads(weights: np.ndarray, bounds: np.ndarray, first: float, last: float) -> np.ndarray:
    """Load of every virtual stage."""
    found = np.array([weights[a:b].sum() for a, b in pairwise(bounds)])
    found[0] += first
    found[-1] += last
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_slowest_stage_is_as_fast_as_in_any_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, stages = int(rng.integers(3, 10)), int(rng.integers(1, 4))
    weights = rng.choice([1.0, rng.uniform(0.3, 2.0)], size=layers)
    first, last = rng.uniform(0.0, 1.0, 2)
    cuts = [np.array([0, *inner, layers]) for inner in combinations(range(1, layers), stages - 1)]
    least = min(loads(weights, cut, first, last).max() for cut in cuts)
    cut = first_full_bounds(weights, stages, first, last)
    assert loads(weights, cut, first, last).max() <= least * (1.0 + 1e-8)
    most = max(cut[1] for cut in cuts if loads(weights, cut, first, last)[0] <= least * (1.0 + 1e-9))
    assert cut[1] >= min(most, balanced_bounds(weights, stages, first, last)[1])


def test_light_first_layers_fill_the_first_stage() -> None:
    """Dense layers before heavier ones, as in DeepSeek-V3: three light ones and two heavy ones fit where four heavy ones do."""
    weights = np.array([0.6] * 3 + [1.0] * 58)
    assert np.diff(first_full_bounds(weights, 16, 0.0, 2.5)).tolist() == [5, 3, *[4] * 13, 1]
    assert np.diff(balanced_bounds(weights, 16, 0.0, 2.5)).tolist() == [*[4] * 15, 1]


def two_kinds(framework: str, **cluster: Any) -> Any:
    blocks = [{**LLAMA_LIKE, "repeat": 2}, {**LLAMA_LIKE, "repeat": 9, "mlp": MIXTURE}]
    constraints = {"allowed": {"cp": [1], "mbs": [1, 2], "ep": [1, 4], "tp": [1, 2]}}
    return sample_problem(model=sample_model(blocks=blocks), framework=framework, constraints=constraints, **cluster)


MIXED = {
    "groups": [group("h", "H100-SXM5-80", 1), group("a", "A100-SXM4-80", 1)],
    "cluster": {"links": [{"between": ["h", "a"], "bytes_per_s_per_node": 5.0e10, "collectives": True}]},
}


@pytest.mark.parametrize("framework", ["any", "megatron-core"])
def test_search_and_recount_cut_alike(framework: str) -> None:
    problem = two_kinds(framework, **MIXED)
    session = open_session(problem)
    cells = session.space.cells.take(session.space.cells.split == TIMED)
    assert len(cells)
    zero = np.zeros(len(cells), dtype=np.int64)
    candidates = session.builder.candidates(cells, zero=zero, inside_node=zero > 0, low=zero, high=zero)
    tables = session.builder.tables()
    found: dict[tuple[Any, ...], list[int]] = {}
    for index in range(len(cells)):
        start, parts = tables.split_start[candidates.split[index]], int(cells.stages[index] * cells.chunks[index])
        slots = (int(cells.group[index, 0]), int(cells.tp[index, 0]), int(cells.ep[index, 0]), int(cells.etp[index, 0]))
        found[(*slots, int(cells.mbs[index]), parts)] = tables.bounds[start : start + parts + 1].tolist()
    options = Options.of(session.model, get_rule_set(problem.framework.name, problem.framework.version))
    recounted = {recount_key(cell): split_bounds(options, cell).tolist() for cell in stated_cells(options) if is_timed(cell)}
    assert recounted == found


def recount_key(cell: Cell) -> tuple[int, ...]:
    return (cell.groups[0], cell.tp[0], cell.ep, cell.etp, cell.mbs, cell.pieces)


def is_timed(cell: Cell) -> bool:
    return cell.split == SPLITS[TIMED]


def test_a_timed_cut_of_another_rule_is_left_out() -> None:
    session = open_session(two_kinds("any", **MIXED))
    cells = session.space.cells
    assert set(np.unique(cells.split[cells.family == UNIFORM]).tolist()) == {EVEN, BALANCED, TIMED}
    assert session.space.dimensions["layer_split"] == SPLITS
    timed = cells.take(cells.split == TIMED)
    zero = np.zeros(len(timed), dtype=np.int64)
    rows = session.builder.candidates(timed, zero=zero, inside_node=zero > 0, low=zero, high=zero).split
    tables = session.builder.tables()
    for index, row in enumerate(rows.tolist()):
        parts = int(timed.stages[index] * timed.chunks[index])
        cut = tables.bounds[tables.split_start[row] : tables.split_start[row] + parts + 1]
        for rule in (EVEN, BALANCED):
            assert (cut != session.builder.split_bounds(0, parts, 1, rule, 0, 0)).any()
