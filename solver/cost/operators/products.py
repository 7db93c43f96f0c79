"""Seconds of matrix products: forward; backward (input and weight gradient, its accumulation); casts to 8 bits."""

from __future__ import annotations

import numpy as np

from solver.cost.operators.context import LayerCosts, Product
from solver.units import STATE_BYTES


def forward_s(costs: LayerCosts, product: Product) -> np.ndarray:
    """The product itself; in 8 bits also the cast and transpose of its input and the cast of its weight."""
    device = costs.device
    seconds = device.gemm_s(product.m, product.n, product.k, product.batch, narrow=product.narrow, grouped=product.grouped)
    if product.narrow and device.narrow:
        seconds = seconds + _cast_s(costs, product.m * product.k * product.batch)
    return seconds


def backward_s(costs: LayerCosts, product: Product) -> np.ndarray:
    """Input gradient [m, n] x [n, k], weight gradient [n, m] x [m, k], and adding the latter to the accumulated one."""
    device, m, n, k, batch = costs.device, product.m, product.n, product.k, product.batch
    seconds = device.gemm_s(m, k, n, batch, narrow=product.narrow, grouped=product.grouped)
    seconds = seconds + weight_gradient_s(costs, product)
    if product.narrow and device.narrow:
        seconds = seconds + _cast_s(costs, m * n * batch)
    return np.asarray(seconds)


def weight_gradient_s(costs: LayerCosts, product: Product) -> np.ndarray:
    """Weight gradient [n, m] x [m, k] and adding it to the accumulated one: what a schedule may put off."""
    device, m, n, k, batch = costs.device, product.m, product.n, product.k, product.batch
    seconds = device.gemm_s(n, k, m, batch, narrow=product.narrow, grouped=product.grouped)
    return np.asarray(seconds + device.stream_s(accumulation_bytes(costs) * n * k * batch))


def accumulation_bytes(costs: LayerCosts) -> float:
    """Bytes a weight's gradient moves when it is added up: read of the new one, read and write of the sum in its own type."""
    summed = STATE_BYTES[costs.workload.optimizer.main_gradient]
    return min(costs.settings["weight_gradient_stream_bytes"], 2.0 + 2.0 * summed)


def _cast_s(costs: LayerCosts, elements: np.ndarray) -> np.ndarray:
    return costs.device.stream_s(costs.shared.fp8_cast_bytes * elements)
