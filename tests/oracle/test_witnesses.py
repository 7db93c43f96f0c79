"""No legal layout of an example is below its certificate's bound or beats its optimum: random, near and published ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from benchmarks.layout_draws import beside_the_space
from benchmarks.witnesses import EXAMPLES, Report, check_example, published, read_example
from solver.replay.layouts import layout_document, recompute_choices
from solver.replay.options import SPLITS
from solver.replay.splits import split_bounds
from solver.search.brute import all_leaves, options_of

FAST = ("llama-3.1-8b-8-a100.yaml", "qwen3-30b-a3b-16-h100.yaml", "gpt3-175b-64-a100.yaml")
ALL = sorted(path.name for path in EXAMPLES.glob("*.yaml"))


def check(report: Report, feasible: bool = True) -> None:
    """Nothing inside the stated space is better; what is better beside it is in the report."""
    assert not report.refuted, (len(report.refuted), report.refuted[:3])
    for entry in report.beside:
        print(entry)
    if feasible:
        assert sum(report.comparable.values()) > 0, report
        assert report.closest >= 1.0 - 1e-9


def test_cuts_and_recompute_beside_the_space_are_told_apart() -> None:
    """Layouts of the space are in it; a layer moved, or recompute on the last layers, is not."""
    options = options_of(read_example("llama-3.1-8b-8-a100.yaml"))
    leaves = [leaf for leaf in all_leaves(options) if leaf.pieces > 1 and leaf.pieces < options.layers]
    assert leaves
    for leaf in leaves[:: max(1, len(leaves) // 12)]:
        for recompute in islice(recompute_choices(options, leaf), 6):
            assert beside_the_space(options, layout_document(options, leaf, recompute, 0, False, 0)) is None
        bounds = split_bounds(options, leaf)
        counts = np.diff(bounds)
        most, least = int(np.argmax(counts)), int(np.argmin(counts))
        counts[most], counts[least] = counts[least] + (most == least), counts[most]
        moved = np.cumsum([0, *counts[::-1]])
        if not any(np.array_equal(moved, split_bounds(options, replace(leaf, split=rule))) for rule in SPLITS):
            layout = layout_document(options, leaf, [0] * options.layers, 0, False, 0, moved)
            assert "cut" in str(beside_the_space(options, layout))
    wide = next(leaf for leaf in all_leaves(options) if leaf.pp == 1)
    last = [0] * (options.layers - 1) + [3]
    assert "recompute" in str(beside_the_space(options, layout_document(options, wide, last, 0, False, 0)))


@pytest.mark.parametrize("example", FAST)
def test_few_witnesses(example: str) -> None:
    check(check_example(example, randoms=20, near=20, seed=1))


@pytest.mark.ci
@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", ALL)
def test_two_hundred_witnesses_and_a_hundred_neighbours(example: str) -> None:
    report = check_example(example, randoms=200, near=100)
    check(report, feasible=example != "llama-3.1-70b-8-a100-40.yaml")
    assert report.evaluated["random"] == 200


def test_published_layouts_name_existing_examples() -> None:
    assert sum(len(published(example)) for example in ALL) >= 15
    for example in ALL:
        for entry in published(example):
            assert set(entry) == {"problem", "source", "adapted", "layout"}
