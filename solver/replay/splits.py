"""Layer splits of the recounted space, restated: even, balanced by FLOPs, and timed by the seconds at the cell's own point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import attention_flops_per_work, head_forward_flops_per_token, projection_flops_per_token
from solver.cost.operators import Points
from solver.cost.table import CostModel
from solver.dimensions.layers import balanced_bounds, layer_weights, segment_bounds
from solver.frameworks import balanced_split
from solver.replay.options import CP_KINDS, Options

if TYPE_CHECKING:
    from solver.replay.space import Cell

EQUAL = 1e-9


def relative_weights(model: CostModel) -> tuple[np.ndarray, float]:
    """Forward FLOPs of every layer and of the head (with prediction layers) at a mean row, over those of the heaviest kind."""
    shape = model.architecture
    per_token = [
        projection_flops_per_token(kind, shape.model.hidden_size)
        + attention_flops_per_work(kind) * model.scenarios.least_work / float(model.scenarios.row_tokens)
        for kind in shape.kinds
    ]
    head = head_forward_flops_per_token(shape.model) + shape.mtp_layers * per_token[-1]
    return layer_weights(per_token, shape.kind_of_layer), head / max(per_token)


def split_bounds(options: Options, cell: Cell) -> np.ndarray:
    """int[pieces + 1]: piece k holds layers bounds[k] ... bounds[k + 1] - 1; an open cell is cut by its stages."""
    layers, first = options.layers, cell.first_stages
    if first is not None:
        weights, head = relative_weights(options.model)
        cut = cell.first_layers
        if cut is None:
            cut = max(first, min(layers - (cell.pp - first), layers * first // cell.pp))
        return segment_bounds(weights, ((first, cut), (cell.pp - first, layers - cut)), head)
    key = (cell.split, cell.pieces, point_of(cell) if cell.split == "timed" else None)
    if key not in options.cuts:
        options.cuts[key] = _cut(options, cell, cell.split, cell.pieces)
    found: np.ndarray = options.cuts[key]
    return found


def repeats_a_cut(options: Options, cell: Cell) -> bool:
    """A timed cell whose cut another rule gives as well: that layout is in the space once."""
    if cell.split != "timed":
        return False
    timed = split_bounds(options, cell)
    return any(np.array_equal(timed, _cut(options, cell, rule, cell.pieces)) for rule in ("even", "balanced"))


def _cut(options: Options, cell: Cell, rule: str, parts: int) -> np.ndarray:
    if rule == "even":
        return np.cumsum([0, *balanced_split(options.layers, parts)]).astype(np.int64)
    if rule == "balanced":
        weights, head = relative_weights(options.model)
        return balanced_bounds(weights, parts, 0.0, head)
    return timed_bounds(*seconds_at(options, cell), parts)


def point_of(cell: Cell) -> tuple[int | str, ...]:
    """What the seconds of a layer depend on, on the first group."""
    return (cell.groups[0], cell.tp[0], cell.cp, cell.cp_kind, cell.ep, cell.etp, cell.mbs)


def seconds_at(options: Options, cell: Cell) -> tuple[list[float], float, float]:
    """Forward and backward seconds of every layer, of the embedding, and of the head with its prediction layers."""
    key = ("seconds", *point_of(cell))
    if key not in options.cuts:
        options.cuts[key] = _seconds_at(options, cell)
    layers, first, last = options.cuts[key]
    return layers, first, last


def _seconds_at(options: Options, cell: Cell) -> tuple[list[float], float, float]:
    model = options.model
    sizes = (cell.tp[0], cell.cp, CP_KINDS.index(cell.cp_kind), cell.ep, cell.etp, cell.mbs)
    tp, cp, cp_kind, ep, etp, mbs = (np.array([size]) for size in sizes)
    parallel = np.array([int(cell.tp[0] > 1 and options.sequence_parallel)])
    tokens = model.scenarios.row_tokens
    points = Points(tp=tp, cp=cp, cp_kind=cp_kind, ep=ep, etp=etp, mbs=mbs, sp=parallel, row_tokens=tokens)
    kinds, table = (rows[0] for rows in model.point_tables(cell.groups[0], points))
    work = float(model.scalars[col.MEAN_WORK]) * cell.mbs
    kind = [
        float(row[col.FORWARD_BASE] + row[col.BACKWARD_BASE] + (row[col.FORWARD_SLOPE] + row[col.BACKWARD_SLOPE]) * work)
        for row in kinds
    ]
    head = float(table[col.HEAD_FORWARD] + table[col.HEAD_BACKWARD])
    head += float(model.scalars[col.MTP_LAYERS]) * kind[int(model.scalars[col.MTP_KIND])]
    embedding = float(table[col.EMBEDDING_FORWARD] + table[col.EMBEDDING_BACKWARD])
    return [kind[index] for index in model.architecture.kind_of_layer], embedding, head


def timed_bounds(seconds: list[float], embedding: float, head: float, parts: int) -> np.ndarray:
    """The slowest part as fast as possible; the first part full, the others filled from the last one on."""
    layers = len(seconds)
    if parts == 1:
        return np.array([0, layers])
    low, high = max(*seconds, embedding, head), sum(seconds) + embedding + head
    while high - low > high * EQUAL / 100.0:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _filled(seconds, embedding, head, parts, middle)[0] == 0 else (middle, high)
    limit = high * (1.0 + EQUAL)
    first, load = 0, embedding
    while first < layers - (parts - 1) and load + seconds[first] <= limit:
        load += seconds[first]
        first += 1
    rest = _filled(seconds[first:], 0.0, head, parts - 1, limit)
    return np.array([0, *(first + start for start in rest), layers], dtype=np.int64)


def _filled(seconds: list[float], embedding: float, head: float, parts: int, limit: float) -> list[int]:
    """First layer of every part when each takes what fits from the end on, leaving a layer to every part before it."""
    starts, layer = [], len(seconds)
    for part in range(parts - 1, -1, -1):
        load = (head if part == parts - 1 else 0.0) + (embedding if part == 0 else 0.0)
        while layer > part and load + seconds[layer - 1] <= limit:
            layer -= 1
            load += seconds[layer]
        starts.append(layer)
    return starts[::-1]
