"""Which node runs which ranks: launchers number ranks node by node, equally many on each."""

from __future__ import annotations

from dataclasses import dataclass

from solver.layout import Layout
from solver.problem.problem import Problem


class UnlaunchableError(Exception):
    """The launch order does not go node by node; the message says where."""


@dataclass(frozen=True)
class LaunchNodes:
    """`nodes` in launch order as (group, node of the group); `local_devices` on each of them."""

    nodes: tuple[tuple[str, int], ...]
    local_devices: tuple[int, ...]

    @property
    def processes_per_node(self) -> int:
        return len(self.local_devices)

    @property
    def world_size(self) -> int:
        return len(self.nodes) * self.processes_per_node

    def ranges(self) -> list[tuple[int, int, str, int, int]]:
        """Runs of consecutive nodes of a group: (first and last node rank, group, first and last node of the group)."""
        runs: list[tuple[int, int, str, int, int]] = []
        for rank, (group, node) in enumerate(self.nodes):
            if runs and runs[-1][2] == group and runs[-1][4] == node - 1:
                runs[-1] = (runs[-1][0], rank, group, runs[-1][3], node)
            else:
                runs.append((rank, rank, group, node, node))
        return runs


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
    nodes: list[tuple[str, int]] = []
    local: list[list[int]] = []
    for rank in range(len(by_rank)):
        group, device = by_rank[rank]
        node = (group, device // per_node[group])
        if not nodes or nodes[-1] != node:
            if node in nodes:
                raise UnlaunchableError(f"rank {rank} returns to node {node[1]} of group {group!r}")
            nodes.append(node)
            local.append([])
        local[-1].append(device % per_node[group])
    if any(devices != local[0] for devices in local):
        raise UnlaunchableError("nodes run unequal numbers of ranks or different local devices")
    if local[0] != sorted(local[0]):
        raise UnlaunchableError("ranks of a node are not in the order of its devices")
    return LaunchNodes(tuple(nodes), tuple(local[0]))
