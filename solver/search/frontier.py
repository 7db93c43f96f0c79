"""Unvisited cells of a search, taken best bound first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.search.cells import Cells, no_cells


@dataclass(slots=True, eq=False)
class _Part:
    """Cells that came together, their bounds, and which of them are still unvisited."""

    cells: Cells
    bounds: np.ndarray
    waiting: np.ndarray

    def promising(self, below: float) -> np.ndarray:
        """Positions of unvisited cells with a bound below `below`."""
        return np.flatnonzero(self.waiting & (self.bounds < below))


class Frontier:
    """Parts are never joined again; what was taken out of them is only marked."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []

    def push(self, cells: Cells, bounds: np.ndarray) -> None:
        """Add cells with their bounds (values of the objective)."""
        if len(cells):
            self.parts.append(_Part(cells, bounds, np.ones(len(cells), dtype=bool)))

    def pop(self, size: int, below: float) -> tuple[Cells | None, np.ndarray]:
        """The `size` cells with the least bounds, all below `below`, in order; None when there is none."""
        places = [part.promising(below) for part in self.parts]
        owner = np.repeat(np.arange(len(self.parts)), [len(place) for place in places])
        if not len(owner):
            return None, np.empty(0)
        place = np.concatenate(places)
        bounds = np.concatenate([part.bounds[at] for part, at in zip(self.parts, places, strict=True)])
        chosen = np.argpartition(bounds, size)[:size] if len(bounds) > size else np.arange(len(bounds))
        taken = []
        for index in np.unique(owner[chosen]):
            part = self.parts[index]
            at = place[chosen[owner[chosen] == index]]
            part.waiting[at] = False
            taken.append((part.cells.take(at), part.bounds[at]))
        self.parts = [part for part in self.parts if part.waiting.any()]
        cells, bounds = Cells.concatenate([cells for cells, _ in taken]), np.concatenate([bounds for _, bounds in taken])
        order = np.argsort(bounds, kind="stable")
        return cells.take(order), bounds[order]

    def close(self, value: float) -> list[tuple[Cells, np.ndarray]]:
        """Take out everything whose bound is not below `value`; what stays is kept without the gaps."""
        closed = []
        parts = []
        for part in self.parts:
            over = part.waiting & (part.bounds >= value)
            if not over.any():
                parts.append(part)
                continue
            closed.append((part.cells.take(over), part.bounds[over]))
            keep = part.waiting & ~over
            if keep.any():
                parts.append(_Part(part.cells.take(keep), part.bounds[keep], np.ones(int(keep.sum()), dtype=bool)))
        self.parts = parts
        return closed

    def absorb(self, other: Frontier) -> None:
        """Take over everything that `other` holds."""
        self.parts += other.parts
        other.parts = []

    def rest(self) -> tuple[Cells, np.ndarray]:
        """Everything unvisited."""
        if not self.parts:
            return no_cells(), np.empty(0)
        cells = Cells.concatenate([part.cells.take(part.waiting) for part in self.parts])
        return cells, np.concatenate([part.bounds[part.waiting] for part in self.parts])

    def least(self) -> float:
        """Least bound, infinite when nothing is left."""
        return min((float(part.bounds[part.waiting].min()) for part in self.parts), default=np.inf)

    def leaves_at_least(self, value: float) -> int:
        """Leaves of the unvisited cells that `value` closes."""
        return sum(int(part.cells.leaves[part.waiting & (part.bounds >= value)].sum()) for part in self.parts)
