"""Compiled seconds of matrix products (see `solver.cost.compute`)."""

from __future__ import annotations

from math import ceil

import numpy as np

from solver.compiling import compiled

LEAST_SPLIT_DEPTH = 512.0


@compiled
def product_seconds(
    m: np.ndarray,
    n: np.ndarray,
    k: np.ndarray,
    batch: np.ndarray,
    tiles: np.ndarray,
    splits: np.ndarray,
    processors: float,
    wave_exponent: float,
    half_depth: float,
    flops_per_s: float,
    input_bytes: float,
    output_bytes: float,
    bytes_per_s: float,
    overhead_s: float,
    out: np.ndarray,
) -> None:
    """Write seconds of `batch` products [m, k] x [k, n] each.

    Rate: best tile (`tiles` [rows, columns, relative rate]) and split of the depth (`splits` [parts, relative rate]), the fill of
    its last wave softened, times k / (k + half depth). Joined with the bytes bound by (a^4 + b^4)^(1/4).
    """
    for index in range(m.shape[0]):
        rows, columns, depth, times = max(m[index], 1.0), max(n[index], 1.0), max(k[index], 1.0), max(batch[index], 1.0)
        best = 0.0
        for tile in range(tiles.shape[0]):
            blocks = ceil(rows / tiles[tile, 0]) * ceil(columns / tiles[tile, 1]) * times
            area = rows * columns * times / (processors * tiles[tile, 0] * tiles[tile, 1])
            for split in range(splits.shape[0]):
                parts = splits[split, 0]
                if parts > 1.0 and depth < parts * LEAST_SPLIT_DEPTH:
                    continue
                fill = area * parts / ceil(blocks * parts / processors)
                best = max(best, fill**wave_exponent * tiles[tile, 2] * splits[split, 1])
        rate = flops_per_s * best * depth / (depth + half_depth)
        compute = 2.0 * rows * columns * depth * times / rate
        moved = (input_bytes * (rows * depth + depth * columns) + output_bytes * rows * columns) * times / bytes_per_s
        squared = compute * compute * compute * compute + moved * moved * moved * moved
        out[index] = np.sqrt(np.sqrt(squared)) + overhead_s
