"""Which node runs which ranks: launchers number ranks node by node, in the order of their local devices."""

from __future__ import annotations

from dataclasses import dataclass

from solver.layout import Layout
from solver.problem.problem import Problem


class UnlaunchableError(Exception):
    """The launch order does not go node by node; the message says where."""


@dataclass(frozen=True)
class LaunchNode:
    group: str
    node: int
    local_devices: tuple[int, ...]


@dataclass(frozen=True)
class NodeRun:
    """Consecutive nodes of a group that use the same local devices; ranges include both ends."""

    node_ranks: tuple[int, int]
    group: str
    nodes: tuple[int, int]
    local_devices: tuple[int, ...]
    ranks: tuple[int, int]

    def goes_on_with(self, node: LaunchNode) -> bool:
        return (self.group, self.nodes[1] + 1, self.local_devices) == (node.group, node.node, node.local_devices)


@dataclass(frozen=True)
class LaunchNodes:
    """Nodes in launch order."""

    nodes: tuple[LaunchNode, ...]

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(len(node.local_devices) for node in self.nodes)

    @property
    def world_size(self) -> int:
        return sum(self.processes)

    def runs(self) -> list[NodeRun]:
        found: list[NodeRun] = []
        first_rank = 0
        for at, node in enumerate(self.nodes):
            last_rank = first_rank + len(node.local_devices) - 1
            if found and found[-1].goes_on_with(node):
                before = found.pop()
                ends = ((before.node_ranks[0], at), (before.nodes[0], node.node), (before.ranks[0], last_rank))
            else:
                ends = ((at, at), (node.node, node.node), (first_rank, last_rank))
            found.append(NodeRun(ends[0], node.group, ends[1], node.local_devices, ends[2]))
            first_rank = last_rank + 1
        return found


def _devices_by_rank(layout: Layout) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for stage in layout.stages:
        for part in stage.parts:
            ranks = [rank for first, last in part.ranks for rank in range(first, last + 1)]
            devices = [(entry.group, entry.first + index) for entry in part.devices for index in range(entry.count)]
            found.update(zip(ranks, devices, strict=True))
    return found


def launch_nodes(problem: Problem, layout: Layout) -> LaunchNodes:
    """Nodes in the order of the ranks; raises `UnlaunchableError` when ranks are not dealt out node by node."""
    per_node = {group.name: group.devices_per_node for group in problem.cluster.groups}
    by_rank = _devices_by_rank(layout)
    local: dict[tuple[str, int], list[int]] = {}
    current: tuple[str, int] | None = None
    for rank in range(len(by_rank)):
        group, device = by_rank[rank]
        node = (group, device // per_node[group])
        if node != current and node in local:
            raise UnlaunchableError(f"rank {rank} returns to node {node[1]} of group {group!r}")
        current = node
        local.setdefault(node, []).append(device % per_node[group])
    for (group, index), devices in local.items():
        if devices != sorted(devices):
            raise UnlaunchableError(f"ranks on node {index} of group {group!r} are not in the order of its devices")
    return LaunchNodes(tuple(LaunchNode(group, index, tuple(devices)) for (group, index), devices in local.items()))
