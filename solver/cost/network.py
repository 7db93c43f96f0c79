"""Collective times over the real hierarchy of a group of nodes, as `latency + bytes x slope`.

A process group of `size` ranks with rank `stride` has `g = min(size, span / stride)` members inside a domain of `span` devices
and `size / g` domains. Each rank drives its own share of the tier's bandwidth, so the groups that run side by side share the
network interfaces exactly (cost_models 1.6: never price a node-spanning group by one interface for the whole message).

Ring times (cost_models 1.6): all-gather and reduce-scatter move `(n-1)/n x S` per rank, an all-reduce is both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.problem import Group, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Tier:
    """One level of the fabric: a domain of `span` devices, one-way bytes/s of a device inside it, latency of a hop."""

    span: int
    bytes_per_s: float
    latency_s: float
    base_latency_s: float
    rank_latency_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Tiers of one group, innermost first."""

    tiers: tuple[Tier, ...]
    devices: int

    def tier_index(self, size: np.ndarray, stride: np.ndarray) -> np.ndarray:
        """Index of the outermost tier that a group of `size` ranks with `stride` touches."""
        reach = np.asarray(size) * np.asarray(stride)
        index = np.zeros(np.broadcast(size, stride).shape, dtype=np.int64)
        for position, tier in enumerate(self.tiers[:-1]):
            index = np.where(reach > tier.span, position + 1, index)
        return index

    def gather(self, size: np.ndarray, stride: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(latency_s, s per byte of the full tensor) of an all-gather or reduce-scatter."""
        size, stride = _broadcast(size, stride)
        latency = np.zeros(size.shape)
        slope = np.zeros(size.shape)
        inside = np.ones(size.shape)
        for members, tier in self._levels(size, stride):
            active = members > 1
            latency += np.where(active, tier.base_latency_s + tier.rank_latency_s * members + tier.latency_s, 0.0)
            slope += np.where(active, (members - 1) / members / inside / tier.bytes_per_s, 0.0)
            inside = inside * members
        return latency, slope

    def all_to_all(self, size: np.ndarray, stride: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(latency_s, s per byte a rank holds): each tier carries the share of peers that are reached only through it."""
        size, stride = _broadcast(size, stride)
        latency = np.zeros(size.shape)
        slope = np.zeros(size.shape)
        inside = np.ones(size.shape)
        for members, tier in self._levels(size, stride):
            active = members > 1
            reached = inside * (members - 1)
            latency += np.where(active, tier.base_latency_s + tier.rank_latency_s * members + tier.latency_s, 0.0)
            slope += np.where(active, reached / size / tier.bytes_per_s, 0.0)
            inside = inside * members
        return latency, slope

    def point_to_point(self, stride: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(latency_s, s per byte) between ranks `stride` apart."""
        index = self.tier_index(np.full(np.shape(stride), 2), stride)
        latency = np.array([tier.base_latency_s + tier.latency_s for tier in self.tiers])[index]
        slope = np.array([1.0 / tier.bytes_per_s for tier in self.tiers])[index]
        return latency, slope

    def _levels(self, size: np.ndarray, stride: np.ndarray) -> list[tuple[np.ndarray, Tier]]:
        levels = []
        remaining = size.astype(np.float64)
        width = stride.astype(np.float64)
        for position, tier in enumerate(self.tiers):
            last = position == len(self.tiers) - 1
            fit = remaining if last else np.clip(np.floor(tier.span / width), 1, remaining)
            # a domain that is not filled evenly still needs ceil(remaining / fit) domains
            outer = np.ceil(remaining / fit)
            levels.append((remaining / outer, tier))
            width = width * (remaining / outer)
            remaining = outer
        return levels


def _broadcast(size: np.ndarray, stride: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.broadcast_arrays(np.asarray(size), np.asarray(stride))
    return first.astype(np.float64), second.astype(np.float64)


def group_network(group: Group, assumptions: dict[str, float]) -> Network:
    """Tiers of a group with the measured efficiency of its device's links."""
    rates = group.device.rates
    tiers = []
    for position, tier in enumerate(group.fabric):
        efficiency = rates.scaleup_efficiency if position == 0 else rates.scaleout_efficiency
        base = assumptions["collective_latency_base_s"] if position == 0 else assumptions["internode_latency_s"]
        oversubscription = tier.oversubscription or 1.0
        tiers.append(
            Tier(
                span=tier.span_devices or group.nodes * group.devices_per_node,
                bytes_per_s=tier.bytes_per_s_per_device * efficiency / oversubscription,
                latency_s=tier.latency_s,
                base_latency_s=base,
                rank_latency_s=assumptions["collective_latency_per_rank_s"] if position == 0 else 0.0,
            )
        )
    return Network(tiers=tuple(tiers), devices=group.nodes * group.devices_per_node)


@dataclass(frozen=True, slots=True)
class GroupLink:
    """Bandwidth of one device between two groups (its node's share), latency, and whether collectives may cross."""

    bytes_per_s: float
    latency_s: float
    collectives: bool


def group_link(problem: Problem, first: int, second: int) -> GroupLink:
    """The link between two groups; without one, the slower of the two outermost tiers (DESIGN 3.7)."""
    groups = problem.cluster.groups
    assumptions = problem.workload.software.assumptions
    one, two = groups[first], groups[second]
    efficiency = min(one.device.rates.scaleout_efficiency, two.device.rates.scaleout_efficiency)
    names = {one.name, two.name}
    for link in problem.cluster.links:
        if link.between is not None and set(link.between) == names:
            per_node = max(one.devices_per_node, two.devices_per_node)
            latency = assumptions["internode_latency_s"] + (link.latency_s or 0.0)
            rate = link.bytes_per_s_per_node * efficiency / per_node
            return GroupLink(bytes_per_s=rate, latency_s=latency, collectives=bool(link.collectives))
    outer = [group_network(group, assumptions).tiers[-1] for group in (one, two)]
    slower = min(outer, key=lambda tier: tier.bytes_per_s)
    like = one.device.vendor == two.device.vendor
    return GroupLink(bytes_per_s=slower.bytes_per_s, latency_s=slower.base_latency_s + slower.latency_s, collectives=like)
