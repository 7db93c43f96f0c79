"""Cutting the layers of a model over (virtual) stages.

A cut is `bounds` (int[stages * vpp + 1]): virtual stage k holds layers bounds[k] ... bounds[k + 1] - 1 and sits on stage
k % stages.
"""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled

BISECTIONS = 48
FULL_SLACK = 1e-9
"""relative: loads this close are equal"""


@compiled
def fills_from_the_end(
    weights: np.ndarray, virtual_stages: int, first_extra: float, last_extra: float, limit: float, bounds: np.ndarray
) -> bool:
    """Write the cut that fills the last stages first up to `limit`; whether it places all layers."""
    layer = weights.shape[0]
    bounds[virtual_stages] = layer
    for stage in range(virtual_stages - 1, -1, -1):
        load = last_extra if stage == virtual_stages - 1 else 0.0
        load += first_extra if stage == 0 else 0.0
        # a stage before this one must not be left empty while layers are scarce
        while layer > stage and load + weights[layer - 1] <= limit:
            load += weights[layer - 1]
            layer -= 1
        bounds[stage] = layer
    return bool(layer == 0)


@compiled
def least_load(weights: np.ndarray, virtual_stages: int, first_extra: float, last_extra: float) -> float:
    """Load of the heaviest virtual stage of the best cut, from above."""
    bounds = np.zeros(virtual_stages + 1, dtype=np.int64)
    low = max(weights.max(), last_extra, first_extra)
    high = weights.sum() + first_extra + last_extra
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if fills_from_the_end(weights, virtual_stages, first_extra, last_extra, middle, bounds):
            high = middle
        else:
            low = middle
    return float(high)


@compiled
def balanced_bounds(weights: np.ndarray, virtual_stages: int, first_extra: float, last_extra: float) -> np.ndarray:
    """The cut whose heaviest virtual stage is least; later stages are filled first, so the first (which holds the most
    micro-batches in flight) is the lightest.

    `weights[layers]` relative seconds of each layer, `first_extra` and `last_extra` those of the embedding and the head.
    """
    bounds = np.zeros(virtual_stages + 1, dtype=np.int64)
    # the whole model on every stage is a cut: this load always fills
    load = least_load(weights, virtual_stages, first_extra, last_extra)
    fills_from_the_end(weights, virtual_stages, first_extra, last_extra, load * (1.0 + 1e-12), bounds)
    return bounds


@compiled
def first_full_bounds(weights: np.ndarray, virtual_stages: int, first_extra: float, last_extra: float) -> np.ndarray:
    """A cut with the same least load whose first virtual stage is full; the later ones are filled from the end.

    What is missing to full stages is missing on the second one: its gradients and optimizer finish behind the first stage's.
    """
    bounds = np.zeros(virtual_stages + 1, dtype=np.int64)
    layers = weights.shape[0]
    if virtual_stages == 1:
        bounds[1] = layers
        return bounds
    limit = least_load(weights, virtual_stages, first_extra, last_extra) * (1.0 + FULL_SLACK)
    first, load = 0, first_extra
    while first < layers - (virtual_stages - 1) and load + weights[first] <= limit:
        load += weights[first]
        first += 1
    fills_from_the_end(weights[first:], virtual_stages - 1, 0.0, last_extra, limit, bounds[1:])
    bounds[1:] += first
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
