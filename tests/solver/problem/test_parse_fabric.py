"""Fabrics: spans filled and cut to the group, nesting, ports."""

from __future__ import annotations

from typing import Any

import pytest

from solver.problem import parse_problem
from tests.solver.problem.documents import mixed, small
from tests.solver.problem.refusals import findings


def test_fabric_spans_the_group_and_has_ports_where_it_leaves_the_node() -> None:
    """Two nodes and more: the network tier spans them and carries the ports."""
    group = parse_problem(mixed()).cluster.groups[0]
    assert [(tier.name, tier.span_devices, tier.ports_per_node) for tier in group.fabric] == [("nvlink", 8, None), ("ib", 32, 8)]


def test_half_a_node_cuts_the_catalogue_fabric() -> None:
    """Four devices a node: the scale-up tier is that node, not two of them."""
    document = small(**{"cluster.groups.0.devices_per_node": 4, "cluster.groups.0.nodes": 2})
    assert [tier.span_devices for tier in parse_problem(document).cluster.groups[0].fabric] == [4, 8]


def tiers(*spans: int | None, **more: Any) -> list[dict[str, Any]]:
    """A fabric of tiers with these spans."""
    bare = [{"name": f"t{i}", "bytes_per_s_per_device": 1e10, **more} for i in range(len(spans))]
    return [tier if span is None else {**tier, "span_devices": span} for tier, span in zip(bare, spans, strict=True)]


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (tiers(8, None), [8, 32]),
        (tiers(8, 1000), [8, 32]),
        (tiers(4, 8, 16, 32), [4, 8, 16, 32]),
        (tiers(64, None), [32]),
        (tiers(None), [32]),
    ],
)
def test_fabric_spans(fabric: list[dict[str, Any]], expected: list[int]) -> None:
    """The last tier spans the group; what the group does not reach is dropped."""
    document = small(**{"cluster.groups.0.fabric": fabric, "cluster.groups.0.nodes": 4})
    assert [tier.span_devices for tier in parse_problem(document).cluster.groups[0].fabric] == expected


@pytest.mark.parametrize(
    ("fabric", "index", "code"),
    [
        (tiers(8, 8, None), 1, "conflict"),
        (tiers(8, 4, None), 1, "conflict"),
        (tiers(6, None), 0, "conflict"),
        (tiers(8, 16), 1, "conflict"),
        (tiers(None, None), 0, "missing"),
    ],
)
def test_fabric_that_does_not_nest(fabric: list[dict[str, Any]], index: int, code: str) -> None:
    """Tiers go outwards, hold whole inner ones and whole nodes or parts of one."""
    document = small(**{"cluster.groups.0.fabric": fabric, "cluster.groups.0.nodes": 4})
    assert (f"/cluster/groups/0/fabric/{index}/span_devices", code) in findings(document)


def test_ports_belong_where_the_node_is_left() -> None:
    """Ports on the inner tier are refused, torus and mesh are not supported yet."""
    document = small(**{"cluster.groups.0.fabric": tiers(8, None, ports_per_node=4), "cluster.groups.0.nodes": 4})
    assert findings(document) == {("/cluster/groups/0/fabric/0/ports_per_node", "conflict")}
    document = small(**{"cluster.groups.0.fabric": tiers(None, kind="torus", shape=[2, 4])})
    assert findings(document) == {("/cluster/groups/0/fabric/0/kind", "not_supported")}
