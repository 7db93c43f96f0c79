"""Seconds of single operators on one device, from their shapes. Arrays in, arrays out.

GEMM form and constants: a rate with K half-depth and softened wave quantisation over tile shapes, joined with the bytes bound by
a soft maximum (fit on published A100/H100/V100 microbenchmarks and runs; see the README's accuracy table).
"""

from __future__ import annotations

import numpy as np

from solver.problem import DeviceSpec
from solver.units import Dtype

TILES = ((256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.82), (64, 64, 0.66))
"""(rows, columns, rate relative to the largest tile)."""
WAVE_EXPONENT = 0.32
"""cuBLAS softens wave quantisation; the utilisation of the last wave enters with this exponent."""
SOFT_MAXIMUM = 4.0
ATTENTION_RAMP_TOKENS = 400.0
"""Flash attention reaches its rate as 1 / (1 + 400 / s): attention work of a document is s^2 + 400 s."""


class DeviceCosts:
    """Rates of one device at one precision."""

    def __init__(self, device: DeviceSpec, precision: Dtype, kernel_overhead_s: float) -> None:
        rates = device.rates
        peak = device.peak_flops_per_s
        self.peak_flops_per_s = peak[precision]
        self.gemm_flops_per_s = self.peak_flops_per_s * rates.gemm_efficiency
        self.half_depth = rates.gemm_half_depth
        self.bytes_per_s = device.memory_bytes_per_s * rates.memory_efficiency
        self.processors = float(device.streaming_multiprocessors)
        self.attention_forward_flops_per_s = self.peak_flops_per_s * rates.attention_forward_efficiency
        self.attention_backward_flops_per_s = self.attention_forward_flops_per_s * rates.attention_backward_ratio
        self.kernel_overhead_s = kernel_overhead_s
        self.element_bytes = 4.0 if precision == "fp32" else 2.0

    def gemm_s(self, m: np.ndarray, n: np.ndarray, k: np.ndarray | float, batch: np.ndarray | float = 1.0) -> np.ndarray:
        """Seconds of `batch` products of [m, k] x [k, n]."""
        m, n, k, batch = (np.maximum(np.asarray(value, dtype=np.float64), 1.0) for value in (m, n, k, batch))
        rate = np.zeros(np.broadcast(m, n, k, batch).shape)
        for rows, columns, relative in TILES:
            tiles = np.ceil(m / rows) * np.ceil(n / columns) * batch
            waves = np.ceil(tiles / self.processors)
            filled = m * n * batch / (waves * self.processors * rows * columns)
            rate = np.maximum(rate, filled**WAVE_EXPONENT * relative)
        rate = rate * k / (k + self.half_depth)
        compute = 2.0 * m * n * k * batch / (self.gemm_flops_per_s * rate)
        memory = self.element_bytes * (m * k + k * n + m * n) * batch / self.bytes_per_s
        joined: np.ndarray = (compute**SOFT_MAXIMUM + memory**SOFT_MAXIMUM) ** (1.0 / SOFT_MAXIMUM) + self.kernel_overhead_s
        return joined

    def stream_s(self, moved_bytes: np.ndarray | float) -> np.ndarray:
        """Seconds of a bytes-bound operator."""
        return np.asarray(moved_bytes) / self.bytes_per_s


def soft_maximum(first: np.ndarray, second: np.ndarray | float, exponent: float) -> np.ndarray:
    """(a^p + b^p)^(1/p): launch floor against device time (half-launch-bound cells need the rounding)."""
    joined: np.ndarray = (np.asarray(first) ** exponent + np.asarray(second) ** exponent) ** (1.0 / exponent)
    return joined
