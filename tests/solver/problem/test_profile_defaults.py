"""A software profile settles what a problem leaves open: constants with their defaults, and kernels."""

from __future__ import annotations

from typing import Any

import pytest

from solver.catalog import profiles
from solver.problem import Kernels, Problem, normal_form, parse_problem
from tests.solver.problem.documents import small


def parsed(software: Any, **kernels: Any) -> Problem:
    return parse_problem(small(**{"workload.software": software, **({"workload.kernels": kernels} if kernels else {})}))


def test_profiles_have_the_same_constants() -> None:
    """The list is closed: an override of one profile is one of all."""
    names = {frozenset(profile.assumptions) for profile in profiles().values()}
    assert len(names) == 1
    assert all(set(profile.sources) == set(profile.assumptions) for profile in profiles().values())


@pytest.mark.parametrize("name", sorted(profiles()))
def test_kernels_of_a_profile_are_kernels(name: str) -> None:
    asked = parsed(name)
    assert asked.workload.kernels == Kernels.model_validate(profiles()[name].kernels)


def test_stated_kernels_win() -> None:
    eager = parsed("accelerate")
    assert (eager.workload.kernels.norm, eager.workload.kernels.loss) == ("eager", "gathered")
    stated = parsed("accelerate", norm="fused")
    assert (stated.workload.kernels.norm, stated.workload.kernels.loss) == ("fused", "gathered")


def test_the_normal_form_states_all_kernels() -> None:
    """Parsing it again, without the profile's name, changes nothing."""
    document = normal_form(parsed("accelerate"))
    again = normal_form(parse_problem(document))
    assert again == document
