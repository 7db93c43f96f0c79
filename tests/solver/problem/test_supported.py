"""What is supported here is what the rest of the solver has."""

from __future__ import annotations

import pytest

from solver.frameworks import framework_names, get_rule_set
from solver.problem.supported import FRAMEWORKS


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_frameworks_are_those_with_rule_sets(name: str) -> None:
    """Names and versions agree with the rule sets."""
    assert set(framework_names()) == set(FRAMEWORKS)
    assert get_rule_set(name).versions == FRAMEWORKS[name]
