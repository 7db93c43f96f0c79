"""What is supported here is what the rest of the solver has."""

from __future__ import annotations

import pytest

from solver.frameworks import framework_names, framework_versions
from solver.problem.supported import FRAMEWORKS


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_frameworks_are_those_with_rule_sets(name: str) -> None:
    """Names and versions agree with the rule sets."""
    assert set(framework_names()) == set(FRAMEWORKS)
    assert framework_versions(name) == FRAMEWORKS[name]
