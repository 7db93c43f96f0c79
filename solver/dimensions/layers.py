"""Cutting the layers of a model over (virtual) stages.

A cut is `bounds` (int[stages * vpp + 1]): virtual stage k holds layers bounds[k] ... bounds[k + 1] - 1 and sits on stage
k % stages.
"""

from __future__ import annotations

import numpy as np

BISECTIONS = 48


def even_bounds(layers: int, virtual_stages: int) -> np.ndarray | None:
    """Equal counts, or None when `virtual_stages` does not divide the layers."""
    if layers % virtual_stages:
        return None
    return np.arange(virtual_stages + 1, dtype=np.int64) * (layers // virtual_stages)


def balanced_bounds(weights: np.ndarray, virtual_stages: int, first_extra: float = 0.0, last_extra: float = 0.0) -> np.ndarray:
    """The cut whose heaviest virtual stage is least; later stages are filled first, so the first (which holds the most
    micro-batches in flight) is the lightest.

    `weights[layers]` relative seconds of each layer, `first_extra` and `last_extra` those of the embedding and the head.
    """
    low = float(max(weights.max(), last_extra, first_extra))
    high = float(weights.sum()) + first_extra + last_extra
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if _fill_from_the_end(weights, virtual_stages, first_extra, last_extra, middle) is None:
            low = middle
        else:
            high = middle
    bounds = _fill_from_the_end(weights, virtual_stages, first_extra, last_extra, high * (1.0 + 1e-12))
    assert bounds is not None, "the whole model on every stage is a cut"
    return bounds


def segment_bounds(weights: np.ndarray, segments: tuple[tuple[int, int], ...], last_extra: float) -> np.ndarray:
    """Bounds of consecutive segments (stages, layers), each balanced by itself; the last one carries the head."""
    pieces = [np.zeros(1, dtype=np.int64)]
    done = 0
    for position, (stages, layers) in enumerate(segments):
        extra = last_extra if position == len(segments) - 1 else 0.0
        inner = balanced_bounds(weights[done : done + layers], stages, 0.0, extra)
        pieces.append(inner[1:] + done)
        done += layers
    return np.concatenate(pieces)


def layer_weights(flops_per_token: list[float], kind_of_layer: np.ndarray) -> np.ndarray:
    """Weight of each layer relative to the heaviest kind."""
    heaviest = max(flops_per_token)
    return np.array([flops_per_token[kind] / heaviest for kind in kind_of_layer])


def _fill_from_the_end(
    weights: np.ndarray, virtual_stages: int, first_extra: float, last_extra: float, limit: float
) -> np.ndarray | None:
    bounds = np.zeros(virtual_stages + 1, dtype=np.int64)
    layer = len(weights)
    bounds[virtual_stages] = layer
    for stage in range(virtual_stages - 1, -1, -1):
        load = last_extra if stage == virtual_stages - 1 else 0.0
        load += first_extra if stage == 0 else 0.0
        # a stage before this one must not be left empty while layers are scarce
        while layer > stage and load + weights[layer - 1] <= limit:
            load += weights[layer - 1]
            layer -= 1
        bounds[stage] = layer
    return bounds if layer == 0 else None
