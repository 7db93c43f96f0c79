"""No legal layout of an example is below its certificate's bound or beats its optimum: random, near and published ones."""

from __future__ import annotations

import pytest

from benchmarks.witnesses import EXAMPLES, Report, check_example, published

FAST = ("llama-3.1-8b-8-a100.yaml", "qwen3-30b-a3b-16-h100.yaml", "gpt3-175b-64-a100.yaml")
ALL = sorted(path.name for path in EXAMPLES.glob("*.yaml"))


NEAR_SLACK = 0.01
"""neighbours may move single layers and so leave the cuts of the stated space: one may be better, but not by more than this"""


def check(report: Report, feasible: bool = True) -> None:
    inside = [entry for entry in report.refuted if not entry.startswith("neighbours")]
    assert not inside, (len(inside), inside[:3])
    near = [entry for entry in report.refuted if entry.startswith("neighbours")]
    assert not near or report.closest >= 1.0 - NEAR_SLACK, near[:3]
    if feasible:
        assert sum(report.comparable.values()) > 0, report
        assert report.closest >= (1.0 - NEAR_SLACK if near else 1.0 - 1e-9)


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
