"""ZB-V (Qi et al. 2024, arXiv 2401.10241, 6; PyTorch's ScheduleZBVZeroBubble): two chunks per rank on a V-shaped path.

Rank 0 holds the first and the last piece, so the first backward comes back to it at once and 2p chunks in flight (1F1B's p
micro-batches) are enough. The step counts as the longest row, as for ZB-H2. No bubble where F = I = W and m >= 2p-1; with
W <= F <= I it is (p-1)(I - W). Fewer micro-batches run the order of 2p-1 of them with the missing ones left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.compiling import compiled
from solver.schedules import Operation, VShaped
from solver.schedules.programs import FORWARD, INPUT, WEIGHT, operations, put

CODE = 5


@compiled
def zbv_in_flight(stage: int, stages: int, micro_batches: int) -> float:
    """In units of both chunks: all warm-up forwards and the first forward of the second chunk after them."""
    return 0.5 * (min(micro_batches, 2 * stages - 1 - stage) + min(micro_batches, stage + 1))


@compiled
def zbv_order(stage: int, stages: int, micro_batches: int, program: np.ndarray) -> int:
    """Write the operations of a rank into int32[6 x max(m, 2p-1), 4]; how many there are."""
    padded = max(2 * stages - 1, micro_batches)
    first, second = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)  # forwards, I's, W's of each chunk so far
    count = 0
    for _ in range(2 * (stages - stage) - 1):
        count = step(program, count, FORWARD, 0, first, micro_batches)
    for _ in range(stage):
        count = step(program, count, FORWARD, 1, second, micro_batches)
        count = step(program, count, FORWARD, 0, first, micro_batches)
    for _ in range(stages - stage):
        count = step(program, count, FORWARD, 1, second, micro_batches)
        count = both_halves(program, count, 1, second, micro_batches)
    while second[0] < first[0] or first[0] < padded:
        if first[0] < padded:
            count = step(program, count, FORWARD, 0, first, micro_batches)
        count = both_halves(program, count, 0, first, micro_batches)
        count = step(program, count, FORWARD, 1, second, micro_batches)
        count = both_halves(program, count, 1, second, micro_batches)
    for _ in range(stage):
        count = step(program, count, INPUT, 0, first, micro_batches)
        count = step(program, count, INPUT, 1, second, micro_batches)
    for _ in range(stages - stage):
        count = step(program, count, INPUT, 0, first, micro_batches)
        count = step(program, count, WEIGHT, 0, first, micro_batches)
    while second[2] < second[1]:
        count = step(program, count, WEIGHT, 1, second, micro_batches)
    while first[2] < first[1]:
        count = step(program, count, WEIGHT, 0, first, micro_batches)
    return count


@compiled
def step(program: np.ndarray, count: int, kind: int, chunk: int, done: np.ndarray, micro_batches: int) -> int:
    """The next micro-batch of a chunk in one kind of operation, left out where there is none of that number."""
    column = 0 if kind == FORWARD else kind - 1
    if done[column] < micro_batches:
        count = put(program, count, kind, done[column], chunk, 0)
    done[column] += 1
    return count


@compiled
def both_halves(program: np.ndarray, count: int, chunk: int, done: np.ndarray, micro_batches: int) -> int:
    """I and W of the next micro-batch of a chunk."""
    count = step(program, count, INPUT, chunk, done, micro_batches)
    return step(program, count, WEIGHT, chunk, done, micro_batches)


@dataclass(frozen=True)
class ZeroBubbleV(VShaped):
    kind: str = "zero_bubble_v"
    code: int = CODE
    chunks: int | None = 2
    post_validated: bool = True

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        return None if vpp == 2 else f"zero_bubble_v runs two chunks per stage, not {vpp}"

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        program = np.zeros((6 * micro_batches, 4), dtype=np.int32)
        return operations(program[: zbv_order(stage, stages, micro_batches, program)])

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(zbv_in_flight(stage, stages, micro_batches))

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        if micro_batches < 2 * stages - 1 or not weight_s <= forward_s <= input_s:
            return None
        return micro_batches * (forward_s + input_s + weight_s) + (stages - 1) * (input_s - weight_s)


SCHEDULE = ZeroBubbleV()
