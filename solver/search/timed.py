"""Timed cuts: layers are spread by the seconds that they take at a cell's own point, not by FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.compiling import compiled
from solver.cost import columns as col
from solver.dimensions.layers import first_full_bounds


@dataclass(frozen=True, slots=True, eq=False)
class LayerSeconds:
    """Forward and backward seconds of one micro-batch at P points.

    `kinds[P, kinds]` of a layer, `first[P]` of the embedding, `last[P]` of the head with its prediction layers.
    """

    kinds: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def cuts(self, kind_of_layer: np.ndarray, virtual_stages: int) -> np.ndarray:
        """int[P, virtual_stages + 1]: the timed cut at every point."""
        found: np.ndarray = _cuts(self.kinds, self.first, self.last, np.asarray(kind_of_layer, dtype=np.int64), virtual_stages)
        return found


def layer_seconds(kinds: np.ndarray, points: np.ndarray, scalars: np.ndarray) -> LayerSeconds:
    """From rows of the kind and point tables: base + slope x mean attention work of a micro-batch, nothing recomputed."""
    work = scalars[col.MEAN_WORK] * points[:, col.POINT_MBS]
    base = kinds[:, :, col.FORWARD_BASE] + kinds[:, :, col.BACKWARD_BASE]
    slope = kinds[:, :, col.FORWARD_SLOPE] + kinds[:, :, col.BACKWARD_SLOPE]
    seconds = base + slope * work[:, None]
    head = points[:, col.HEAD_FORWARD] + points[:, col.HEAD_BACKWARD]
    return LayerSeconds(
        kinds=seconds,
        first=points[:, col.EMBEDDING_FORWARD] + points[:, col.EMBEDDING_BACKWARD],
        last=head + scalars[col.MTP_LAYERS] * seconds[:, int(scalars[col.MTP_KIND])],
    )


@compiled
def _cuts(kinds: np.ndarray, first: np.ndarray, last: np.ndarray, kind_of_layer: np.ndarray, virtual_stages: int) -> np.ndarray:
    found = np.empty((kinds.shape[0], virtual_stages + 1), dtype=np.int64)
    for point in range(kinds.shape[0]):
        found[point] = first_full_bounds(kinds[point][kind_of_layer], virtual_stages, first[point], last[point])
    return found
