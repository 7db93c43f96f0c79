"""Collective times over the real hierarchy of a group of nodes, as `latency + bytes x slope`.

A process group of `size` ranks with rank `stride` has `g = min(size, span / stride)` members inside a domain of `span` devices
and `size / g` domains. Each rank drives its own share of the tier's bandwidth, so the groups that run side by side share the
network interfaces exactly (cost_models 1.6: never price a node-spanning group by one interface for the whole message).

Ring times (cost_models 1.6): all-gather and reduce-scatter move `(n-1)/n x S` per rank, an all-reduce is both. Where a group
crosses tiers, the outer one counts in full and the inner ones, which overlap it, by `inner_tier_share`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.cost.shared import SharedConstants
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
    inner_tier_share: float

    def tier_index(self, size: np.ndarray, stride: np.ndarray) -> np.ndarray:
        """Index of the outermost tier that a group of `size` ranks with `stride` touches."""
        reach = np.asarray(size) * np.asarray(stride)
        index = np.zeros(np.broadcast(size, stride).shape, dtype=np.int64)
        for position, tier in enumerate(self.tiers[:-1]):
            index = np.where(reach > tier.span, position + 1, index)
        return index

    def gather(self, size: np.ndarray, stride: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(latency_s, s per byte of the full tensor) of an all-gather or reduce-scatter."""
        return self._over_levels(size, stride, lambda members, inside, size: (members - 1) / members / inside)

    def load(self, size: np.ndarray, stride: np.ndarray) -> np.ndarray:
        """Share of a gather's transfer time that it would take at the innermost tier's rate (1 inside a node).

        Collectives slow the products beside them by the memory traffic they cause, so by bytes and not by how long they wait
        for the network (Calculon's processor usage: 0.15 on NVLink, 0.02 on InfiniBand).
        """
        size, stride = _broadcast(size, stride)
        _, slope = self.gather(size, stride)
        fastest = (size - 1) / size / self.tiers[0].bytes_per_s
        return np.asarray(np.where(slope > 0.0, np.minimum(1.0, fastest / np.maximum(slope, 1e-30)), 1.0))

    def all_to_all(self, size: np.ndarray, stride: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(latency_s, s per byte a rank holds): each tier carries the share of peers that are reached only through it."""
        return self._over_levels(size, stride, lambda members, inside, size: inside * (members - 1) / size)

    def exchange(self, size: np.ndarray, stride: np.ndarray, copies: float) -> tuple[np.ndarray, np.ndarray]:
        """(latency_s, s per byte a rank holds) of a token exchange that sends a token once to a rank and once to a node.

        `copies` experts a token fall into `D (1 - (1 - 1/D)^copies)` of D domains on average; what enters a node is passed on
        inside it (DeepEP). No copies: a plain all-to-all.
        """
        if copies <= 0.0:
            return self.all_to_all(size, stride)

        def share(members: np.ndarray, inside: np.ndarray, size: np.ndarray) -> np.ndarray:
            domains = size / inside
            distinct = domains * (1.0 - (1.0 - 1.0 / domains) ** copies)
            return np.asarray(distinct / copies * (members - 1) / members)

        return self._over_levels(size, stride, share)

    def _over_levels(
        self, size: np.ndarray, stride: np.ndarray, share: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Latencies added up; `share(members, inside, size)` of the bytes crosses each tier that the group uses."""
        size, stride = _broadcast(size, stride)
        latency = np.zeros(size.shape)
        slope = np.zeros(size.shape)
        if not np.any(size > 1.0):
            return latency, slope
        inside = np.ones(size.shape)
        for members, tier in self._levels(size, stride):
            active = members > 1
            latency += np.where(active, tier.base_latency_s + tier.rank_latency_s * members + tier.latency_s, 0.0)
            slope *= np.where(active, self.inner_tier_share, 1.0)
            slope += np.where(active, share(members, inside, size) / tier.bytes_per_s, 0.0)
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


def group_network(group: Group, shared: SharedConstants) -> Network:
    """Tiers of a group with their own measured efficiency, or that of the device's links."""
    rates = group.device.rates
    tiers = []
    for position, tier in enumerate(group.fabric):
        efficiency = tier.efficiency or (rates.scaleup_efficiency if position == 0 else rates.scaleout_efficiency)
        base = shared.collective_latency_base_s if position == 0 else shared.internode_latency_s
        oversubscription = tier.oversubscription or 1.0
        tiers.append(
            Tier(
                span=tier.span_devices or group.nodes * group.devices_per_node,
                bytes_per_s=tier.bytes_per_s_per_device * efficiency / oversubscription,
                latency_s=tier.latency_s,
                base_latency_s=base,
                rank_latency_s=shared.collective_latency_per_rank_s if position == 0 else 0.0,
            )
        )
    devices = group.nodes * group.devices_per_node
    return Network(tiers=tuple(tiers), devices=devices, inner_tier_share=shared.inner_tier_share)


@dataclass(frozen=True, slots=True)
class GroupLink:
    """Bandwidth of one device between two groups (its node's share), latency, and whether collectives may cross."""

    bytes_per_s: float
    latency_s: float
    collectives: bool


def group_link(problem: Problem, first: int, second: int, shared: SharedConstants) -> GroupLink:
    """The link between two groups; without one, the slower of the two outermost tiers (DESIGN 3.7)."""
    groups = problem.cluster.groups
    one, two = groups[first], groups[second]
    efficiency = min(one.device.rates.scaleout_efficiency, two.device.rates.scaleout_efficiency)
    names = {one.name, two.name}
    for link in problem.cluster.links:
        if link.between is not None and set(link.between) == names:
            per_node = max(one.devices_per_node, two.devices_per_node)
            latency = shared.internode_latency_s + (link.latency_s or 0.0)
            rate = link.bytes_per_s_per_node * efficiency / per_node
            return GroupLink(bytes_per_s=rate, latency_s=latency, collectives=bool(link.collectives))
    outer = [group_network(group, shared).tiers[-1] for group in (one, two)]
    slower = min(outer, key=lambda tier: tier.bytes_per_s)
    like = one.device.vendor == two.device.vendor
    return GroupLink(bytes_per_s=slower.bytes_per_s, latency_s=slower.base_latency_s + slower.latency_s, collectives=like)
