"""Counting a space by formulas gives the number of cells that laying it out makes."""

from __future__ import annotations

from typing import Any

import pytest

from solver.evaluate import Evaluator
from solver.frameworks import get_rule_set
from solver.problem import Problem
from solver.search.count import skeletons_at_least, stage_count, uniform_count
from solver.search.grid import option_grid
from solver.search.pairs import stage_cells
from solver.search.space import group_pairs
from solver.search.uniform import uniform_cells
from tests.oracle.problems import random_problem
from tests.solver.sample_layouts import LLAMA_LIKE, group, sample_model, sample_problem

MIXTURE = {"kind": "moe", "hidden_size": 2048, "gated": True, "experts": 8, "top_k": 4}
ALL = 10**12
UNLIKE = [group("h", "H100-SXM5-80", 1), group("a", "A100-SXM4-80", 2)]


def problems() -> list[Problem]:
    """Dense and mixture, one group and two, with and without constraints, every framework's freedoms."""
    link: dict[str, Any] = {"links": [{"between": ["h", "a"], "bytes_per_s_per_node": 5.0e10, "collectives": True}]}
    blocks = [{"repeat": 6, "attention": LLAMA_LIKE["attention"], "mlp": MIXTURE}]
    return [
        sample_problem(groups=UNLIKE, cluster=link),
        sample_problem(groups=UNLIKE, cluster=link, framework="megatron-core"),
        sample_problem(groups=UNLIKE, cluster=link, constraints={"allowed": {"pp": [2, 3], "dp": [1, 2], "vpp": [1]}}),
        sample_problem(groups=[group("h", "H100-SXM5-80", 2)], model=sample_model(blocks=blocks)),
        *(random_problem(seed) for seed in (3, 5, 8)),
    ]


@pytest.mark.parametrize("number", range(7))
def test_formulas_count_what_is_laid_out(number: int) -> None:
    problem = problems()[number]
    model = Evaluator(problem).model
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    grid = option_grid(model, rules)
    total = 0
    for index in range(len(model.networks)):
        laid_out = sum(len(cells) for cells in uniform_cells(model, grid, index))
        assert uniform_count(model, grid, index, ALL) == laid_out
        total += laid_out
    same = not rules.capabilities.per_stage_degrees
    for first, second in group_pairs(model, rules):
        laid_out = sum(len(cells) for cells in stage_cells(model, grid, first, second, same_degrees=same))
        assert stage_count(model, grid, first, second, same_degrees=same) == laid_out
        total += laid_out if rules.capabilities.uneven_layers else 0
    assert skeletons_at_least(problem, ALL) == total


def test_counting_ends_when_it_is_enough() -> None:
    problem = problems()[0]
    everything = skeletons_at_least(problem, ALL)
    assert 10 < skeletons_at_least(problem, 10) < everything
