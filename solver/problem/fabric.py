"""The fabric of a group: tiers cut to the group's size, the last one spanning it, ports on the first that leaves the node."""

from __future__ import annotations

from solver.problem.cluster import FabricTier
from solver.problem.findings import Findings
from solver.problem.pointers import Path


def complete_fabric(
    tiers: tuple[FabricTier, ...], nodes: int, devices_per_node: int, *, given: bool, path: Path, findings: Findings
) -> tuple[FabricTier, ...]:
    """The tiers that the group reaches, innermost first, spans filled; what does not nest is noted.

    Catalogue tiers (given false) narrower than a node are cut to a smaller node.
    """
    devices = nodes * devices_per_node
    if not given and devices_per_node < tiers[0].span_devices:
        tiers = (tiers[0].model_copy(update={"span_devices": devices_per_node}), *tiers[1:])
    kept: list[FabricTier] = []
    for index, tier in enumerate(tiers):
        last = index == len(tiers) - 1
        span = devices if last else min(tier.span_devices, devices)
        where = (*path, index, "span_devices") if given else (*path[:-1], "devices_per_node")
        _check_span(tier, span, kept, devices_per_node, where, last, findings)
        kept.append(tier.model_copy(update={"span_devices": span}))
        if span >= devices:
            break
    return _with_ports(kept, devices_per_node, given, path, findings)


def _check_span(
    tier: FabricTier, span: int, inner: list[FabricTier], devices_per_node: int, where: Path, last: bool, findings: Findings
) -> None:
    if span < 1:
        findings.add(where, "missing", "every tier but the last needs span_devices")
        return
    if last and tier.span_devices and tier.span_devices < span:
        findings.add(where, "conflict", f"the last tier spans the group, {span} devices")
    if inner and span <= inner[-1].span_devices:
        findings.add(where, "conflict", f"tiers go outwards: more than {inner[-1].span_devices} devices are needed here")
    elif inner and inner[-1].span_devices and span % inner[-1].span_devices and not last:
        findings.add(where, "conflict", f"a tier holds whole tiers of {inner[-1].span_devices} devices")
    if span % devices_per_node and devices_per_node % span:
        findings.add(where, "conflict", f"a tier divides a node of {devices_per_node} devices or holds whole nodes")


def _with_ports(
    tiers: list[FabricTier], devices_per_node: int, given: bool, path: Path, findings: Findings
) -> tuple[FabricTier, ...]:
    """ports_per_node belongs to the first tier that leaves the node: one a device unless given.

    Catalogue tiers (given false) lose their ports when the group is too small to need them.
    """
    leaving = next((i for i, tier in enumerate(tiers) if tier.span_devices > devices_per_node), None)
    result = []
    for index, tier in enumerate(tiers):
        if given and tier.ports_per_node is not None and index != leaving:
            where = (*path, index, "ports_per_node")
            findings.add(where, "conflict", "ports_per_node belongs to the first tier that leaves the node")
        ports = (tier.ports_per_node or devices_per_node) if index == leaving else None
        result.append(tier.model_copy(update={"ports_per_node": ports}))
    return tuple(result)
