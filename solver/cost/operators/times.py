"""Time columns of a layer kind: forward and backward as `base + slope x attention work`, with the launch floor.

A window or chunk of attention does its own work per row; it is an affine share of the full work (`scenarios.WorkShare`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import LayerKind
from solver.cost.compute import soft_maximum
from solver.cost.operators import experts, linear, softmax
from solver.cost.operators.context import LayerCosts, Product
from solver.cost.operators.parts import products, stream_s
from solver.cost.operators.products import backward_s, forward_s, weight_gradient_s
from solver.cost.operators.recompute import selective_modules, selective_s
from solver.cost.scenarios import reach

REBUILT_PRODUCTS = 0.5
"""share of the products that are rebuilt where every second one is saved"""


@dataclass(slots=True)
class Pass:
    """Device seconds, exposed and hidden communication of one direction, before the launch floor; `slope` per attention work."""

    device_s: np.ndarray
    slope: np.ndarray
    tensor_s: np.ndarray
    context_s: np.ndarray
    expert_s: np.ndarray
    tensor_hidden_s: np.ndarray
    context_hidden_s: np.ndarray
    expert_hidden_s: np.ndarray

    @property
    def exposed_s(self) -> np.ndarray:
        return np.asarray(self.tensor_s + self.context_s + self.expert_s)


def fill_times(costs: LayerCosts, kind: LayerKind, out: np.ndarray) -> None:
    """Write the time columns of one kind into `out[points, KIND_COLUMNS]`."""
    exponent = costs.shared.launch_floor_exponent
    floor = launch_floor_s(costs, kind)
    slope_pair, base_pair = attention_terms(costs, kind)
    weights = products(costs, kind)
    passes = []
    for forward, ratio, column in (
        (True, 1.0, col.FORWARD_BASE),
        (False, costs.shared.backward_launch_ratio, col.BACKWARD_BASE),
    ):
        index = 0 if forward else 1
        direction = _pass(costs, kind, weights, slope_pair[index], base_pair[index], forward=forward)
        at_least = direction.slope * costs.least_work * costs.points.mbs
        busy = direction.device_s + direction.exposed_s + at_least
        whole = soft_maximum(busy, floor * ratio, exponent)
        out[:, column] = whole - at_least
        out[:, column + 1] = direction.slope
        passes.append(direction)
    # `whole` and `busy` are those of the backward: its launch floor is shared out by the seconds on the device
    out[:, col.WEIGHT_BASE] = sum(weight_gradient_s(costs, product) for product in products(costs, kind)) * whole / busy
    one, two = passes
    out[:, col.TENSOR_FORWARD], out[:, col.TENSOR_BACKWARD] = one.tensor_s, two.tensor_s
    out[:, col.CONTEXT_FORWARD], out[:, col.CONTEXT_BACKWARD] = one.context_s, two.context_s
    out[:, col.EXPERT_FORWARD], out[:, col.EXPERT_BACKWARD] = one.expert_s, two.expert_s
    out[:, col.TENSOR_HIDDEN] = one.tensor_hidden_s + two.tensor_hidden_s
    out[:, col.CONTEXT_HIDDEN] = one.context_hidden_s + two.context_hidden_s
    out[:, col.EXPERT_HIDDEN] = one.expert_hidden_s + two.expert_hidden_s
    _fill_recompute(costs, kind, one.slope, base_pair[0], out)


def launch_floor_s(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """Host seconds to launch a layer's forward pass: its kernels, and its collectives by (tp / 8)^2."""
    floor = costs.settings["launch_floor_s_per_layer"] + costs.shared.tensor_launch_s * (
        np.minimum(costs.points.tp, 8) / 8.0
    ) ** 2 * (costs.points.tp > 1)
    if kind.mlp is not None and kind.mlp.kind == "moe":
        floor = floor * costs.shared.expert_launch_ratio
    return np.asarray(floor * (costs.shared.graph_launch_fraction if costs.kernels.cuda_graphs else 1.0))


def attention_terms(costs: LayerCosts, kind: LayerKind) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """((forward, backward) seconds per unit of full attention work, (forward, backward) seconds that do not depend on it)."""
    attention = kind.attention
    none = np.zeros(len(costs.points))
    if attention is None:
        return (none, none), (none, none)
    if attention.kind == "linear":
        one, two = (linear.scan_s(costs, attention, forward=forward) for forward in (True, False))
        return (none, none), (one, two)
    forward, backward = softmax.slopes(costs, attention)
    share = costs.shares[reach(costs.problem, attention)]
    fixed = share.fixed * costs.points.mbs
    return (forward * share.per_work, backward * share.per_work), (forward * fixed, backward * fixed)


def _pass(
    costs: LayerCosts, kind: LayerKind, weights: list[Product], slope: np.ndarray, fixed: np.ndarray, *, forward: bool
) -> Pass:
    ratio = 1.0 if forward else costs.shared.backward_stream_ratio
    device = fixed + stream_s(costs, kind, ratio)
    for product in weights:
        device = device + (forward_s(costs, product) if forward else backward_s(costs, product))
    tensor = _tensor_s(costs, kind)
    tensor_overlap = costs.settings["tensor_overlap_fraction"]
    context, context_exposed = _context_s(costs, kind, slope * costs.least_work * costs.points.mbs + fixed, forward=forward)
    expert = experts.exchange_s(costs, kind.mlp) if kind.mlp is not None and kind.mlp.kind == "moe" else 0.0 * costs.one
    expert_overlap = costs.settings["expert_overlap_fraction"]
    return Pass(
        device_s=device,
        slope=slope,
        tensor_s=tensor * (1.0 - tensor_overlap),
        context_s=context_exposed,
        expert_s=expert * (1.0 - expert_overlap),
        tensor_hidden_s=tensor * tensor_overlap,
        context_hidden_s=context - context_exposed,
        expert_hidden_s=expert * expert_overlap,
    )


def _tensor_s(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """All-gather + reduce-scatter (or the equal all-reduce) around attention and around the dense or shared MLP."""
    mlp = kind.mlp
    pairs = 1.0 if kind.attention is not None else 0.0
    if mlp is not None and (mlp.kind == "dense" or mlp.shared_hidden_size) and not kind.parallel:
        pairs += 1.0
    return np.asarray(2.0 * pairs * costs.gather_s(costs.tokens))


def _context_s(costs: LayerCosts, kind: LayerKind, window: np.ndarray, *, forward: bool) -> tuple[np.ndarray, np.ndarray]:
    """(all, exposed) seconds between context-parallel ranks; the ring hides behind `window`, the attention itself."""
    attention = kind.attention
    if attention is None:
        return 0.0 * costs.one, 0.0 * costs.one
    if attention.kind == "linear":
        seconds = linear.context_s(costs, attention)
        return seconds, seconds
    seconds = softmax.context_s(costs, attention, forward=forward)
    least = costs.shared.context_exposed_fraction * seconds
    exposed = np.where(costs.points.cp_kind == 0, np.maximum(least, seconds - window), seconds)
    return seconds, exposed


def _fill_recompute(
    costs: LayerCosts, kind: LayerKind, forward_slope: np.ndarray, forward_fixed: np.ndarray, out: np.ndarray
) -> None:
    modules = selective_modules(costs.problem)
    selective_core = "core_attn" in modules
    linear_layer = kind.attention is not None and kind.attention.kind == "linear"
    core = 0.0 * costs.one if linear_layer else forward_fixed
    out[:, col.RECOMPUTE_BASE + col.OPTION_NONE] = 0.0
    out[:, col.RECOMPUTE_SLOPE + col.OPTION_NONE] = 0.0
    out[:, col.RECOMPUTE_BASE + col.OPTION_CORE_ATTENTION] = 2.0 * costs.device.kernel_overhead_s + core
    out[:, col.RECOMPUTE_SLOPE + col.OPTION_CORE_ATTENTION] = forward_slope
    selective = _rebuilt_operators_s(costs, kind) if "op" in modules else selective_s(costs, kind)
    out[:, col.RECOMPUTE_BASE + col.OPTION_SELECTIVE] = selective + (core if selective_core else 0.0)
    out[:, col.RECOMPUTE_SLOPE + col.OPTION_SELECTIVE] = forward_slope if selective_core else 0.0
    out[:, col.RECOMPUTE_BASE + col.OPTION_FULL] = out[:, col.FORWARD_BASE]
    out[:, col.RECOMPUTE_SLOPE + col.OPTION_FULL] = forward_slope


def _rebuilt_operators_s(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """Seconds of all but attention and every second product."""
    seconds = stream_s(costs, kind, 1.0)
    for product in products(costs, kind):
        seconds = seconds + REBUILT_PRODUCTS * forward_s(costs, product)
    return np.asarray(seconds)
