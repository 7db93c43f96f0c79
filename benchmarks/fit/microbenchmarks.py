"""Device rates read from published microbenchmarks: the same operator formulas as the cost model, one device at a time.

    python -m benchmarks.fit.microbenchmarks

prints, per device of the catalogue, the rates that its rows determine and the median error of the form. Rows slower than half of
the median prediction, issue reports among them, are outliers of the collection (its README, traps 2 and 18): medians, not means.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from benchmarks.fit.data import SHARED
from solver.catalog import CatalogDevice, devices
from solver.cost.compute import SPLITS, TILES
from solver.cost.gemm_kernels import product_seconds
from solver.cost.shared import shared_constants

FOLDER = SHARED / "data" / "microbenchmarks"
DEVICES = {
    "A100-SXM-80GB": "A100-SXM4-80",
    "H100-SXM": "H100-SXM5-80",
    "H200-SXM": "H200-SXM-141",
    "H800-SXM": "H800-SXM5-80",
    "B200-SXM": "B200-SXM-180",
    "B300-SXM": "B300-SXM-288",
    "GB200": "GB200-SXM-186",
    "GB300": "GB300-SXM-288",
    "V100-SXM": "V100-SXM2-32",
    "L40S": "L40S-48",
}
"""name in the collection: name in the catalogue"""
WIDE = ("bfloat16", "float16")
LEAST_ROWS = 512.0
"""products with fewer rows than training has are left out"""
OUTLIER = 0.3
LEAST_SHAPES = 16


@dataclass(frozen=True, slots=True)
class Products:
    """Arrays of measured products; `seconds` measured."""

    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    batch: np.ndarray
    seconds: np.ndarray


def table(name: str) -> Iterator[dict[str, str]]:
    """Rows of one file of the collection."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle)


def products(device: str, dtypes: tuple[str, ...], kinds: tuple[str, ...]) -> Products:
    """Measured products of a device that are as large as training's."""
    found = []
    for row in table("gemm"):
        if row["device"] != device or row["dtype"] not in dtypes or row["kind"] not in kinds or not row["M"] or not row["N"]:
            continue
        m, n, k = (float(row[name]) for name in ("M", "N", "K"))
        groups = float(row["groups"] or 1.0)
        seconds = float(row["time_us"]) * 1e-6 if row["time_us"] else _seconds(row, m, n, k)
        if seconds and m / groups >= LEAST_ROWS / 8 and n >= LEAST_ROWS and k >= LEAST_ROWS and m >= LEAST_ROWS:
            found.append((m / groups, n, k, groups, seconds))
    columns = np.array(found, dtype=np.float64).reshape(-1, 5).T.copy()
    return Products(*columns)


def _seconds(row: dict[str, str], m: float, n: float, k: float) -> float:
    return 2.0 * m * n * k / (float(row["tflops"]) * 1e12) if row["tflops"] else 0.0


def product_s(
    device: CatalogDevice, shapes: Products, efficiency: float, depth: float, overhead_s: float, peak: float, element: float
) -> np.ndarray:
    """The cost model's seconds of the measured products."""
    out = np.empty(len(shapes.m))
    bandwidth = device.content["memory_bytes_per_s"] * 0.9
    product_seconds(
        shapes.m,
        shapes.n,
        shapes.k,
        shapes.batch,
        TILES,
        SPLITS,
        float(device.content["streaming_multiprocessors"]),
        shared_constants().wave_exponent,
        depth,
        peak * efficiency,
        element,
        2.0,
        bandwidth,
        overhead_s,
        out,
    )
    return out


def fit_products(device: CatalogDevice, shapes: Products, peak: float, element: float) -> tuple[float, float, float, float]:
    """(efficiency, half depth, fixed seconds, median error) of the products of one precision."""

    def residual(logs: np.ndarray) -> np.ndarray:
        efficiency, depth, overhead = np.exp(logs)
        seconds = product_s(device, shapes, efficiency, depth, overhead, peak, element)
        return np.asarray(np.append(np.log(seconds / shapes.seconds), 0.3 * (logs - first)))

    first = np.log([0.7, 300.0, 4.0e-6])
    solution = least_squares(residual, first, loss="cauchy", f_scale=OUTLIER / 3.0)
    efficiency, depth, overhead = np.exp(solution.x)
    error = np.abs(np.expm1(residual(solution.x)[:-3]))
    return float(efficiency), float(depth), float(overhead), float(np.median(error))


def grouped_ratio(device: CatalogDevice, name: str, efficiency: float, depth: float, peak: float) -> tuple[float, int, float]:
    """(rate of expert products over dense ones, rows, spread): whole expert feed-forwards, their permutation and activation."""
    ratios = []
    bandwidth = device.content["memory_bytes_per_s"] * 0.9
    for row in table("gemm"):
        if row["device"] != name or row["kind"] != "grouped_moe_ffn" or row["dtype"] not in WIDE or not row["time_us"]:
            continue
        if "non-gated" in row["note"] or "vllm" in row["library"].lower() or "sglang" in row["library"].lower():
            continue
        rows, wide, hidden, experts = (float(row[key]) for key in ("M", "N", "K", "groups"))
        seconds = float(row["time_us"]) * 1e-6
        if rows / experts < 256.0:
            continue
        up = Products(*(np.array([value]) for value in (rows / experts, wide, hidden, experts, 0.0)))
        down = Products(*(np.array([value]) for value in (rows / experts, hidden, wide / 2.0, experts, 0.0)))
        computed = sum(product_s(device, one, efficiency, depth, 5e-6, peak, 2.0)[0] for one in (up, down))
        moved = rows * (8.0 * hidden + 6.0 * wide / 2.0) / bandwidth
        ratios.append(computed / (seconds - moved) if seconds > moved else 1.0)
    return (float(np.median(ratios)), len(ratios), float(np.std(ratios))) if ratios else (0.0, 0, 0.0)


def attention(name: str, passes: str, wanted: Callable[[dict[str, str]], bool]) -> tuple[float, float, int]:
    """(TFLOP/s at long sequences, same with the ramp of short ones taken out of all rows, rows)."""
    long, every = [], []
    for row in table("attention"):
        if row["device"] != name or row["pass"] != passes or row["dtype"] not in WIDE or not row["tflops"] or not row["seq_q"]:
            continue
        tokens = float(row["seq_q"])
        if row["seq_q"] != row["seq_kv"] or not wanted(row):
            continue
        every.append(float(row["tflops"]) * (1.0 + 400.0 / tokens))
        if tokens >= 8192:
            long.append(float(row["tflops"]))
    return (float(np.median(long)) if long else 0.0, float(np.median(every)) if every else 0.0, len(every))


def collective(name: str, operation: str, nodes: str) -> tuple[float, float, int]:
    """(bus bandwidth in GB/s of large messages, microseconds of small ones, rows) on eight ranks of one node."""
    large, small, count = [], [], 0
    for row in table("collectives"):
        if (
            row["device"] != name
            or row["op"] != operation
            or row["nodes"] != nodes
            or row["ranks"] not in ("4", "8")
            or not row["bytes"]
        ):
            continue
        count += 1
        size = float(row["bytes"])
        if size >= 2.56e8 and row["busbw_gbps"]:
            large.append(float(row["busbw_gbps"]))
        if size <= 65536 and row["time_us"]:
            small.append(float(row["time_us"]))
    return (float(np.median(large)) if large else 0.0, float(np.median(small)) if small else 0.0, count)


def main() -> None:
    """Print the rates of every device."""
    known = devices()
    for name, catalogued in DEVICES.items():
        device = known[catalogued]
        print(catalogued)
        _print_products(device, name)
        _print_attention(name)
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
            bandwidth, latency, count = collective(name, operation, "1")
            if count:
                print(f"  {operation}: {bandwidth:.0f} GB/s, {latency:.0f} us, {count} rows")


def _print_products(device: CatalogDevice, name: str) -> None:
    peaks = device.content["peak_flops_per_s"]
    wide_peak = peaks.get("bf16", peaks.get("fp16"))
    for dtypes, peak, element in (
        (WIDE, wide_peak, 2.0),
        (("fp8",), peaks.get("fp8"), 1.0),
        (("fp8_block",), peaks.get("fp8"), 1.0),
    ):
        shapes = products(name, dtypes, ("dense",))
        if peak is None or len(shapes.m) < LEAST_SHAPES:
            continue
        efficiency, depth, overhead, error = fit_products(device, shapes, peak, element)
        print(
            f"  products {dtypes[0]}: efficiency {efficiency:.3f} half depth {depth:.0f} fixed {overhead * 1e6:.1f} us, "
            f"{len(shapes.m)} rows, median error {error:.1%}"
        )
        if element > 1.0:
            ratio, count, spread = grouped_ratio(device, name, efficiency, depth, peak)
            print(f"  experts: ratio {ratio:.2f} of {count} rows, spread {spread:.2f}")


def _print_attention(name: str) -> None:
    for passes in ("fwd", "bwd", "fwd+bwd"):
        for width in ("128", "64"):
            long, every, count = attention(name, passes, lambda row, width=width: row["head_dim"] == width)
            if count:
                print(
                    f"  attention {passes} head size {width}: {long:.0f} TFLOP/s from 8k, {every:.0f} without ramp, {count} rows"
                )


if __name__ == "__main__":
    main()
