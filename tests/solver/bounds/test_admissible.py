"""No bound is above the price of a layout it speaks for: a closed skeleton, open shares, an open layer split, one layout."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from solver.balance.ledger import assemble
from solver.layout import SCHEDULE_KINDS, Layout
from solver.replay.arrays import Arrays
from solver.replay.layouts import layout_document, recompute_choices
from solver.replay.options import Options
from solver.replay.space import Cell, leaves_of, stated_cells, variants_of
from solver.search.brute import options_of
from tests.oracle.problems import random_problem

FAST, MANY = 40, 400
LEAVES = 16
LEAVES_OF_SCHEDULE = 4
LAYOUTS_PER_LEAF = 3
SLACK = 1.0 + 1e-9
FAMILIES = {"uniform", "replicas", "stages"}


def sampled_leaves(options: Options, rng: random.Random) -> list[Cell]:
    """Leaves of every family, the unlike ones as often as the uniform ones, and of every schedule."""
    cells = stated_cells(options)
    chosen = []
    for word, value, most in [("family", family, LEAVES) for family in sorted(FAMILIES)] + [
        ("schedule", kind, LEAVES_OF_SCHEDULE) for kind in SCHEDULE_KINDS
    ]:
        mine = [cell for cell in cells if getattr(cell, word) == value]
        for cell in rng.sample(mine, min(most, len(mine))):
            chosen.append(rng.choice(list(leaves_of(options, cell))))
    return chosen


def sampled_layouts(options: Options, leaf: Cell, rng: random.Random) -> Iterator[Layout]:
    """The cheapest choice by memory-free reckoning (nothing recomputed, states whole), and others at random."""
    variants = sorted({(variant.zero, variant.inside_node) for variant in variants_of(options, leaf)})
    choices = list(recompute_choices(options, leaf))
    yield layout_document(options, leaf, choices[0], *variants[0], options.offload_percents()[0])
    for _ in range(LAYOUTS_PER_LEAF - 1):
        percent = rng.choice(options.offload_percents())
        yield layout_document(options, leaf, rng.choice(choices), *rng.choice(variants), percent)


def check(seed: int) -> set[str]:
    """Families and schedules that were sampled."""
    rng = random.Random(seed)
    options = options_of(random_problem(seed, most_layouts=20_000))
    leaves = sampled_leaves(options, rng)
    if not leaves:
        return set()
    arrays = Arrays(options)
    own = arrays.skeletons(leaves)
    open_cells = arrays.skeletons([leaf.parent or leaf for leaf in leaves])
    for leaf, closed, opened in zip(leaves, own, open_cells, strict=True):
        for layout in sampled_layouts(options, leaf, rng):
            assembled = assemble(options.model, layout)
            seconds = float(assembled.step_seconds().mean())
            assert closed <= seconds * SLACK, ("closed skeleton", seed, closed / seconds, leaf)
            assert opened <= seconds * SLACK, ("open cell", seed, opened / seconds, leaf)
            assert assembled.bound_seconds() <= seconds * SLACK, ("layout", seed, assembled.bound_seconds() / seconds, leaf)
    return {leaf.family for leaf in leaves} | {leaf.schedule for leaf in leaves}


@pytest.mark.parametrize("seed", range(1000, 1000 + FAST))
def test_no_bound_is_above_a_price(seed: int) -> None:
    check(seed)


@pytest.mark.ci
def test_no_bound_is_above_a_price_of_many_problems() -> None:
    families: set[str] = set()
    wrong = []
    for seed in range(2000, 2000 + MANY):
        try:
            families |= check(seed)
        except AssertionError as error:
            wrong.append(str(error).splitlines()[0])
    assert not wrong, (len(wrong), wrong[:10])
    assert families == FAMILIES | set(SCHEDULE_KINDS)
