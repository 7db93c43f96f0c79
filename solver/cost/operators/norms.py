"""Norms and residual additions: bytes-bound, spread over the tensor ranks where sequence parallel."""

from __future__ import annotations

import numpy as np

from solver.cost.architecture import LayerKind
from solver.cost.operators.context import LayerCosts

NORM_BYTES = 4.0
"""bytes an element of a fused norm moves (read and write of 16-bit values)"""
EAGER_NORM_BYTES = 30.0
"""RMSNorm written out in PyTorch: cast, square, mean, product, cast, product"""
RESIDUAL_BYTES = {False: 6.0, True: 7.0}
"""bytes an element of a residual addition moves, without and with dropout (its mask)"""


def stream_bytes(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """Forward bytes of a layer's norms and residual additions (one addition where attention and feed-forward are parallel)."""
    eager = costs.kernels.norm == "eager" and costs.model.norm == "rms"
    norm = EAGER_NORM_BYTES if eager else NORM_BYTES
    sublayers = float((kind.attention is not None) + (kind.mlp is not None))
    residuals = 1.0 if kind.parallel else sublayers
    return np.asarray(costs.local_tokens * costs.hidden * (kind.norms * norm + residuals * RESIDUAL_BYTES[costs.dropout]))
