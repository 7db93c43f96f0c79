"""A fixed kernel whose speed is printed beside every figure, so that limits can be scaled between machines.

One core: 1F1B recurrence of 16 stages x 256 micro-batches in plain loops, compiled; reported as operations a second of CPU time.
`python -m benchmarks.reference_speed`
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numba
import numpy as np

STAGES, MICRO_BATCHES, ROUNDS = 16, 256, 200
RECORDED_OPERATIONS_PER_S = 6.6e8
"""value on the machine that the limits were set on"""


@numba.njit(cache=False)
def _kernel(forward: np.ndarray, backward: np.ndarray, micro_batches: int, rounds: int) -> float:
    stages = forward.shape[0]
    ends = np.zeros(stages)
    total = 0.0
    for _ in range(rounds):
        for stage in range(stages):
            ends[stage] = 0.0
        for _ in range(micro_batches):
            before = 0.0
            for stage in range(stages):
                ends[stage] = max(ends[stage], before) + forward[stage]
                before = ends[stage]
            for stage in range(stages - 1, -1, -1):
                ends[stage] = max(ends[stage], before) + backward[stage]
                before = ends[stage]
        total += ends[0]
    return total


def reference_operations_per_s(runs: int = 7) -> float:
    """Median over `runs` of stage operations per CPU second."""
    forward = np.linspace(0.9, 1.1, STAGES)
    backward = 2.0 * forward
    _kernel(forward, backward, MICRO_BATCHES, 1)
    seconds = cpu_seconds(lambda: _kernel(forward, backward, MICRO_BATCHES, ROUNDS), runs)
    return 2.0 * STAGES * MICRO_BATCHES * ROUNDS / statistics.median(seconds)


def cpu_seconds(run: Callable[[], object], runs: int) -> list[float]:
    """CPU seconds of the process in each of `runs` calls."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return found


if __name__ == "__main__":
    speed = reference_operations_per_s()
    print(
        f"reference kernel: {speed / 1e6:.1f} million operations/s, {speed / RECORDED_OPERATIONS_PER_S:.2f} of the recorded speed"
    )
