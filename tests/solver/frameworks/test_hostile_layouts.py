"""Whatever is sent as a layout is either refused with a pointer or judged; nothing crashes, hangs or wraps around."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.dimensions.words import expand_uniform
from solver.errors import InvalidProblem
from solver.exporters import expressible
from solver.frameworks import describe_frameworks, framework_names, get_rule_set
from solver.layout import Layout, UniformLayout
from solver.plan import parse_layout
from tests.solver.frameworks.problems import problem, qwen3_30b_a3b, uniform_model

DENSE, MOE = problem(uniform_model(8), nodes=2), problem(qwen3_30b_a3b(), nodes=2)
DOCUMENTS = [
    expand_uniform(DENSE, UniformLayout(tp=2, pp=2, vpp=2, recompute="full")).model_dump(mode="json"),
    expand_uniform(MOE, UniformLayout(tp=4, ep=8, pp=2)).model_dump(mode="json"),
]
WORDS = [
    "tp",
    "cp",
    "pp",
    "ep",
    "etp",
    "vpp",
    "mbs",
    "dp",
    "gbs",
    "zero",
    "recompute",
    "schedule",
    "groups",
    "cp_kind",
    "offload_optimizer",
]
VALUES = st.one_of(
    st.integers(-2, 70),
    st.sampled_from(
        [262_144, 262_145, 2**31, 2**53, 2**80, -(2**63), 0.5, 1e300, float("inf"), float("nan"), True, None, "", "full"]
    ),
    st.sampled_from(
        [[], {}, [0], ["g"], ["g", "g"], [[0, 1]], {"kind": "full"}, {"kind": "none", "modules": ["x"]}, "interleaved"]
    ),
)


def judge(document: Any) -> None:
    try:
        layout = parse_layout(document)
    except InvalidProblem as refused:
        if any(error.pointer and not error.pointer.startswith("/") for error in refused.errors):
            raise AssertionError(refused.errors) from refused
        return
    for asked in (DENSE, MOE):
        for name in framework_names():
            found = get_rule_set(name).violations(asked, layout)
            assert all(violation.message for violation in found)
            json.dumps([violation.model_dump(mode="json") for violation in found])
        if isinstance(layout, Layout):
            expressible(asked, layout, "megatron-core")
            continue
        try:
            expand_uniform(asked, layout)
        except InvalidProblem:
            continue


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*WORDS, "sequence_parallel", "nonsense"]), VALUES, max_size=6))
def test_words(document: dict[str, Any]) -> None:
    judge(document)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, entry in items for place in places(entry, (*path, name)))]


PLACES = [(number, place) for number, document in enumerate(DOCUMENTS) for place in places(document) if place]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3), st.booleans())
def test_mutated_layouts(changes: list[tuple[tuple[int, tuple[Any, ...]], Any]], drop: bool) -> None:
    number = changes[0][0][0]
    document = copy.deepcopy(DOCUMENTS[number])
    for (of, (*steps, name)), value in changes:
        if of != number:
            continue
        at: Any = document
        try:
            for step in steps:
                at = at[step]
            if drop and isinstance(at, dict):
                del at[name]
            else:
                at[name] = value
        except (KeyError, IndexError, TypeError):
            continue
    judge(document)


@pytest.mark.parametrize("document", [None, [], "tp", 3, {"modules": {}}, {"modules": [{}]}, {"modules": [{"stages": [{}]}]}])
def test_no_layout_at_all(document: Any) -> None:
    with pytest.raises(InvalidProblem):
        parse_layout(document)


def test_large_degrees_do_not_wrap_around() -> None:
    huge = UniformLayout(tp=262_144, cp=262_144, dp=262_144, pp=262_144)
    assert "S01" in {found.rule for found in get_rule_set("any").violations(DENSE, huge)}


def test_large_counts_do_not_hang() -> None:
    huge = UniformLayout(pp=262_144, vpp=262_144)
    assert "MC14" in {found.rule for found in get_rule_set("megatron-core").violations(DENSE, huge)}
    judge({"pp": 262_144, "vpp": 262_144})
    judge({"vpp": 262_144, "pp": 2})
    document = copy.deepcopy(DOCUMENTS[0])
    document["modules"][0]["stages"][0]["chunks"] = [[0, 1_000_000]] * 2
    judge(document)


def test_groups_are_named_once() -> None:
    assert {found.rule for found in get_rule_set("any").violations(DENSE, UniformLayout(groups=("g", "g")))} == {"L10"}


def test_frameworks_are_described() -> None:
    found = {entry["name"]: entry for entry in reversed(json.loads(json.dumps(describe_frameworks())))}
    assert found["megatron-core"]["exports"] is True
    assert found["megatron-core"]["capabilities"]["zero_levels"] == [0, 1]
    assert found["any"]["exports"] is False
