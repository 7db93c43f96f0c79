"""Bounds of skeletons: closed cells by the window bound, open shares by weighted windows, open layer splits by a fluid cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.balance.batch import Candidates, Tables
from solver.bounds.kernels import skeleton_batch
from solver.cost import columns as col
from solver.cost.table import CostModel


@dataclass(frozen=True, slots=True, eq=False)
class SkeletonBounds:
    """Which cells are open: `shares_open` between two chains; `first_stages` > 0 where the layers are not cut between groups."""

    shares_open: np.ndarray
    first_stages: np.ndarray
    rows: np.ndarray


def skeleton_bounds(model: CostModel, tables: Tables, candidates: Candidates, open_parts: SkeletonBounds) -> np.ndarray:
    """Seconds that no layout of each skeleton can undercut (memory, states, recompute and offload left free)."""
    bound = np.full(len(candidates), np.inf)
    if not len(candidates):
        return bound
    fluid = open_parts.first_stages > 0
    for mask, function in ((~fluid, _window), (fluid, _fluid)):
        if mask.any():
            bound[mask] = function(model, tables, candidates.take(mask), open_parts, mask)
    return bound


def average_bounds(
    model: CostModel, tables: Tables, point: np.ndarray, stages: np.ndarray, micro_batches: np.ndarray
) -> np.ndarray:
    """Seconds that equal replicas on one kind of device cannot undercut however the layers are cut, from table rows `point`.

    A micro-batch keeps the stages busy for S = sum over layers, embedding and head of forward + backward; the slowest stage takes
    at least S / stages of it, and runs m of them one after the other: step >= m S / stages [P]. S is that of the mean work, which
    the replicas take on average when every row is dealt once.
    """
    shape = model.architecture
    counts = np.bincount(shape.kind_of_layer, minlength=len(shape.kinds)).astype(np.float64)
    if shape.mtp_layers:
        counts[-1] = shape.mtp_layers
    rows, inverse = np.unique(point, return_inverse=True)
    work = model.scalars[col.MEAN_WORK] * tables.points[rows, col.POINT_MBS]
    entry = tables.kinds[rows]
    base = entry[:, :, col.FORWARD_BASE] + entry[:, :, col.BACKWARD_BASE]
    slope = entry[:, :, col.FORWARD_SLOPE] + entry[:, :, col.BACKWARD_SLOPE]
    ends = tables.points[rows][:, [col.EMBEDDING_FORWARD, col.EMBEDDING_BACKWARD, col.HEAD_FORWARD, col.HEAD_BACKWARD]]
    whole = (base + slope * work[:, None]) @ counts + ends.sum(axis=1)
    bound: np.ndarray = micro_batches * whole[inverse.ravel()] / stages + model.scalars[col.STEP_OVERHEAD]
    return bound


def _window(model: CostModel, tables: Tables, candidates: Candidates, open_parts: SkeletonBounds, mask: np.ndarray) -> np.ndarray:
    bound = np.full(len(candidates), np.inf)
    skeleton_batch(
        tables.kinds,
        tables.points,
        tables.meshes,
        model.scalars,
        tables.peers,
        model.architecture.kind_of_layer,
        tables.bounds,
        tables.split_start,
        tables.placements,
        candidates.stages,
        candidates.vpp,
        candidates.schedule,
        candidates.chains,
        candidates.placement,
        candidates.split,
        candidates.mbs,
        candidates.count,
        candidates.micro_batches,
        open_parts.rows[mask],
        open_parts.shares_open[mask],
        candidates.slot_point,
        candidates.slot_mesh,
        candidates.cross_mesh,
        model.scenarios.work,
        model.scenarios.equal_rows,
        bound,
    )
    return bound


def _fluid(model: CostModel, tables: Tables, candidates: Candidates, open_parts: SkeletonBounds, mask: np.ndarray) -> np.ndarray:
    """Layers as a fluid between the two groups of a pipeline.

    With p_1, p_2 stages and layer times t_1, t_2 (forward + backward at the mean work) the slowest stage tau obeys, for any
    lambda > 0, tau (lambda p_1 + p_2) >= sum over layers of min(lambda t_1, t_2) + lambda x embedding_1 + head_2, and the step is
    at least m tau [P]. lambda = (all layers on 2) / (all layers on 1).
    """
    counts = np.bincount(model.architecture.kind_of_layer, minlength=len(model.architecture.kinds)).astype(np.float64)
    if model.architecture.mtp_layers:
        counts[-1] = 0.0
    work = model.scalars[col.MEAN_WORK] * candidates.mbs
    layer_s = []
    for slot in range(2):
        entry = tables.kinds[candidates.slot_point[:, slot]]
        base = entry[:, :, col.FORWARD_BASE] + entry[:, :, col.BACKWARD_BASE]
        slope = entry[:, :, col.FORWARD_SLOPE] + entry[:, :, col.BACKWARD_SLOPE]
        layer_s.append(base + slope * work[:, None])
    points = tables.points
    first, second = candidates.slot_point[:, 0], candidates.slot_point[:, 1]
    embedding = points[first, col.EMBEDDING_FORWARD] + points[first, col.EMBEDDING_BACKWARD]
    head = points[second, col.HEAD_FORWARD] + points[second, col.HEAD_BACKWARD]
    ratio = (layer_s[1] @ counts) / (layer_s[0] @ counts)
    least = np.minimum(ratio[:, None] * layer_s[0], layer_s[1]) @ counts
    stages_first = open_parts.first_stages[mask]
    slowest = (least + ratio * embedding + head) / (ratio * stages_first + (candidates.stages - stages_first))
    # the mean over scenarios of the work dealt equals the mean work: every replica of the one chain runs m micro-batches
    bound: np.ndarray = candidates.micro_batches[:, 0] * slowest + model.scalars[col.STEP_OVERHEAD]
    return bound
