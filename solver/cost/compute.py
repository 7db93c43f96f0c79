"""Seconds of single operators on one device, from their shapes. Arrays in, arrays out.

GEMM form: a rate with K half-depth and softened wave quantisation over tile shapes, joined with the bytes bound by a soft
maximum. Rates are in the device files, with the published microbenchmark or fit each comes from.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.cost.gemm_kernels import product_seconds
from solver.cost.shared import SharedConstants
from solver.problem import DeviceSpec
from solver.problem.cluster import DeviceRates
from solver.units import Dtype

TILES: Final = np.array([[256.0, 128.0, 1.0], [128.0, 128.0, 0.95], [128.0, 64.0, 0.82], [64.0, 64.0, 0.66]])
"""rows, columns, rate relative to the largest tile"""
SPLITS: Final = np.array([[1.0, 1.0], [2.0, 0.9], [4.0, 0.9]])
"""parts the depth is split into, rate relative to no split"""


class DeviceCosts:
    """Rates of one device at one precision; with `fp8` the products of linear layers run in 8 bits, the rest in 16."""

    def __init__(self, device: DeviceSpec, precision: Dtype, software: dict[str, float], shared: SharedConstants) -> None:
        rates = device.rates
        peak = device.peak_flops_per_s
        self.narrow = precision == "fp8"
        wide: Dtype = ("bf16" if "bf16" in peak else "fp16") if self.narrow else precision
        self.wide_flops_per_s = peak[wide] * rates.gemm_efficiency
        self.narrow_flops_per_s = peak[precision] * rates.fp8_gemm_efficiency * software["fp8_product_ratio"]
        self.grouped_ratio = rates.grouped_gemm_ratio
        self.half_depth = rates.gemm_half_depth
        self.wave_exponent = shared.wave_exponent
        self.bytes_per_s = device.memory_bytes_per_s * rates.memory_efficiency
        self.processors = float(device.streaming_multiprocessors)
        flash = rates.attention_forward_efficiency * flash_ratio(software["flash_attention_version"], rates, shared)
        flash *= software["attention_kernel_ratio"]
        self.attention_forward_flops_per_s = peak[wide] * flash
        self.attention_backward_flops_per_s = self.attention_forward_flops_per_s * rates.attention_backward_ratio
        self.kernel_overhead_s = software["kernel_overhead_s"]
        self.element_bytes = 4.0 if precision == "fp32" else 2.0

    def gemm_s(
        self,
        m: np.ndarray,
        n: np.ndarray,
        k: np.ndarray,
        batch: np.ndarray | None = None,
        *,
        narrow: bool = False,
        grouped: bool = False,
    ) -> np.ndarray:
        """Seconds of `batch` (default one) products of [m, k] x [k, n], arrays of one shape; `narrow` ones in 8 bits."""
        out = np.empty(m.shape)
        narrow = narrow and self.narrow
        product_seconds(
            m,
            n,
            k,
            np.ones(m.shape) if batch is None else batch,
            TILES,
            SPLITS,
            self.processors,
            self.wave_exponent,
            self.half_depth,
            (self.narrow_flops_per_s if narrow else self.wide_flops_per_s) * (self.grouped_ratio if grouped else 1.0),
            1.0 if narrow else self.element_bytes,
            self.element_bytes,
            self.bytes_per_s,
            self.kernel_overhead_s,
            out,
        )
        return out

    def stream_s(self, moved_bytes: np.ndarray | float) -> np.ndarray:
        """Seconds of a bytes-bound operator."""
        return np.asarray(moved_bytes) / self.bytes_per_s


def flash_ratio(version: float, rates: DeviceRates, shared: SharedConstants) -> float:
    """Rate of a flash attention version over the device's fastest kernel: 1, 2, or later."""
    if version >= 3.0:
        return 1.0
    return rates.flash2_ratio * (1.0 if version >= 2.0 else shared.flash1_ratio)


def soft_maximum(first: np.ndarray, second: np.ndarray | float, exponent: float) -> np.ndarray:
    """(a^p + b^p)^(1/p): launch floor against device time (half-launch-bound cells need the rounding)."""
    joined: np.ndarray = (np.asarray(first) ** exponent + np.asarray(second) ** exponent) ** (1.0 / exponent)
    return joined
