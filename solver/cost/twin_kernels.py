"""Compiled comparison of neighbouring stages: equal costs are computed once and copied (arguments as in `memory_kernels`)."""

from __future__ import annotations

import numpy as np

from solver.compiling import inlined
from solver.schedules.dispatch import piece_of


@inlined
def same_layers(layer_kind: np.ndarray, bounds: np.ndarray, one: int, other: int) -> bool:
    """Whether two virtual stages hold as many layers of the same kinds in the same order."""
    width = bounds[one + 1] - bounds[one]
    if bounds[other + 1] - bounds[other] != width:
        return False
    same = True
    for layer in range(width):
        same = same and layer_kind[bounds[one] + layer] == layer_kind[bounds[other] + layer]
    return same


@inlined
def same_options(bounds: np.ndarray, options: np.ndarray, one: int, other: int) -> bool:
    """Whether the layers of two virtual stages of equal width have the same recompute."""
    same = True
    for layer in range(bounds[one + 1] - bounds[one]):
        same = same and options[bounds[one] + layer] == options[bounds[other] + layer]
    return same


@inlined
def twin_of_previous(
    layer_kind: np.ndarray,
    bounds: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    point_at: np.ndarray,
    mesh_at: np.ndarray,
    stage: int,
) -> bool:
    """Whether a stage and the one before it are inner stages with the same points, meshes and layers on all chains."""
    if stage < 2 or stage >= stages - 1:
        return False
    for chain in range(point_at.shape[0]):
        if point_at[chain, stage] != point_at[chain, stage - 1] or mesh_at[chain, stage] != mesh_at[chain, stage - 1]:
            return False
    for chunk in range(vpp):
        piece, before = piece_of(schedule, chunk, stage, stages), piece_of(schedule, chunk, stage - 1, stages)
        if not same_layers(layer_kind, bounds, piece, before):
            return False
    return True
