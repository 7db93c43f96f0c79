"""Groups in rank order, and the meshes over the ranks of one part.

Devices of a group are in order of node and local index. Axes are innermost first: tp, cp, dp, pp (DESIGN 3.7); experts etp,
ep, edp over the same ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.layout import MeshAxis


@dataclass(frozen=True, slots=True)
class RankMap:
    """Groups in rank order with their device counts."""

    groups: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def devices(self) -> int:
        return sum(self.sizes)

    def locate(self, device: int) -> tuple[int, int]:
        """(position of the group, device in it) when devices are counted through the groups in order."""
        for position, size in enumerate(self.sizes):
            if device < size:
                return position, device
            device -= size
        raise IndexError(device)


def dense_mesh(tp: int, cp: int, dp: int) -> tuple[MeshAxis, ...]:
    """Axes of the dense mesh with more than one rank."""
    return _axes((("tp", tp), ("cp", cp), ("dp", dp)))


def expert_mesh(etp: int, ep: int, edp: int) -> tuple[MeshAxis, ...]:
    """Axes of the expert mesh with more than one rank."""
    return _axes((("etp", etp), ("ep", ep), ("edp", edp)))


def _axes(sizes: tuple[tuple[str, int], ...]) -> tuple[MeshAxis, ...]:
    axes = []
    stride = 1
    for axis, size in sizes:
        if size > 1:
            axes.append(MeshAxis.model_validate({"axis": axis, "size": size, "stride": stride}))
        stride *= size
    return tuple(axes)
