"""What ZB-H1 and ZB-H2 share: 1F1B with the backward cut in two; stage i starts with `warmup` forwards and owes `delay` W's.

Stage i runs `warmup` forwards; then, per micro-batch, a forward as long as there are any, the input half I of a backward, and,
from the `delay`-th on, the weight half W of the oldest one that is owed; the other W's last.
"""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled
from solver.schedules import Operation
from solver.schedules.kernels import Floats


def split_order(micro_batches: int, warmup: int, delay: int) -> list[Operation]:
    """All operations of a stage."""
    warmup = min(micro_batches, warmup)
    operations = [Operation("F", j, 0) for j in range(warmup)]
    owed = 0
    for j in range(micro_batches):
        if j + warmup < micro_batches:
            operations.append(Operation("F", j + warmup, 0))
        operations.append(Operation("I", j, 0))
        if j >= delay:
            operations.append(Operation("W", owed, 0))
            owed += 1
    return operations + [Operation("W", j, 0) for j in range(owed, micro_batches)]


@compiled
def split_ends(
    forward_s: Floats,
    backward_s: Floats,
    weight_s: Floats,
    micro_batches: int,
    warmup: np.ndarray,
    delay: np.ndarray,
    starts: Floats,
    ends: Floats,
) -> None:
    """Write the start of the first forward and the end of the last operation of every stage.

    Seconds: [stages, columns], one column per micro-batch or one for all; `warmup`, `delay`: int[stages]. Round r runs, on stage
    i, forward r + warmup_i and backward r. Going down the stages, stage i-1 has run its rounds up to r-1, so the forward that
    stage i needs exists as warmup falls from stage to stage.
    """
    stages, columns = forward_s.shape
    made = np.zeros((stages, micro_batches))  # ends of forwards
    owed = np.zeros(stages, dtype=np.int64)
    ends[:] = 0.0
    for stage in range(stages):
        for q in range(min(micro_batches, warmup[stage])):
            start = ends[stage] if stage == 0 else max(ends[stage], made[stage - 1, q])
            if q == 0:
                starts[stage] = start
            ends[stage] = start + forward_s[stage, 0 if columns == 1 else q]
            made[stage, q] = ends[stage]
    for r in range(micro_batches):
        below = 0.0
        for stage in range(stages - 1, -1, -1):
            now = ends[stage]
            q = r + warmup[stage]
            if q < micro_batches:
                if stage > 0:
                    now = max(now, made[stage - 1, q])
                if q == 0:
                    starts[stage] = now
                now += forward_s[stage, 0 if columns == 1 else q]
                made[stage, q] = now
            column = 0 if columns == 1 else r
            now = max(now, below) + (backward_s[stage, column] - weight_s[stage, column])
            below = now
            if r >= delay[stage]:
                now += weight_s[stage, 0 if columns == 1 else owed[stage]]
                owed[stage] += 1
            ends[stage] = now
    for stage in range(stages):
        for q in range(owed[stage], micro_batches):
            ends[stage] += weight_s[stage, 0 if columns == 1 else q]
