"""The dense feed-forward layer."""

from __future__ import annotations

import numpy as np

from solver.cost.operators.context import LayerCosts, Product
from solver.problem import DenseMlp

PLAIN_BYTES = 4.0
GATED_BYTES = {"fused": 6.0, "eager": 10.0}
"""bytes the activation moves per element of the inner width (time prototype 1.2)"""


def products(costs: LayerCosts, mlp: DenseMlp) -> list[Product]:
    """Up (twice as wide when gated) and down projection."""
    return pair(costs, mlp.hidden_size, gated=mlp.gated)


def pair(costs: LayerCosts, inner: int, *, gated: bool) -> list[Product]:
    """The two products of a feed-forward layer of that inner width, split over the tensor ranks."""
    width = inner / costs.points.tp
    wide = 2.0 if gated else 1.0
    return [costs.product(costs.tokens, wide * width, costs.hidden), costs.product(costs.tokens, costs.hidden, width)]


def activation_bytes(costs: LayerCosts, inner: int, *, gated: bool) -> np.ndarray:
    """Bytes of the activation between the two products, forward."""
    per_element = GATED_BYTES[costs.kernels.glu] if gated else PLAIN_BYTES
    return np.asarray(per_element * inner * costs.tokens / costs.points.tp)
