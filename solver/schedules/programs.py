"""Compiled run of any rank programs: the price of schedules whose order has no recurrence over few numbers.

A program is int32[operations, 4]: kind, micro-batch, chunk, joined to the next one (`solver.schedules.Operation` as numbers). All
times are seconds; edges between ranks are free.
"""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled, inlined
from solver.schedules import Operation, OperationKind
from solver.schedules.kernels import Floats

FORWARD, BACKWARD, INPUT, WEIGHT = 0, 1, 2, 3
KINDS: tuple[OperationKind, ...] = ("F", "B", "I", "W")
PENDING = -1.0


@inlined
def put(program: np.ndarray, count: int, kind: int, micro_batch: int, chunk: int, joined: int) -> int:
    """Append an operation; the new count."""
    program[count, 0] = kind
    program[count, 1] = micro_batch
    program[count, 2] = chunk
    program[count, 3] = joined
    return count + 1


def operations(program: np.ndarray) -> list[Operation]:
    """The rows of a program as operations."""
    return [Operation(KINDS[kind], micro_batch, chunk, bool(joined)) for kind, micro_batch, chunk, joined in program.tolist()]


@inlined
def ready_at(kind: int, micro_batch: int, before: int, after: int, slot: int, forwards: Floats, inputs: Floats) -> float:
    """When the input of an operation exists, `PENDING` while it does not. `before` and `after` are slots on the path, -1 none."""
    if kind == FORWARD:
        return 0.0 if before < 0 else float(forwards[before, micro_batch])
    if kind == WEIGHT:
        return float(inputs[slot, micro_batch])
    return float(forwards[slot, micro_batch] if after < 0 else inputs[after, micro_batch])


@inlined
def seconds_of(kind: int, slot: int, column: int, forward_s: Floats, backward_s: Floats, weight_s: Floats) -> float:
    """Duration of an operation; `backward_s` is the whole backward, `weight_s` its part for weight gradients."""
    if kind == FORWARD:
        return float(forward_s[slot, column])
    if kind == BACKWARD:
        return float(backward_s[slot, column])
    return float(weight_s[slot, column] if kind == WEIGHT else backward_s[slot, column] - weight_s[slot, column])


@compiled
def run_programs(
    programs: np.ndarray,
    counts: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    forward_s: Floats,
    backward_s: Floats,
    weight_s: Floats,
    micro_batches: int,
    starts: Floats,
    ends: Floats,
) -> bool:
    """Write when every rank starts its first operation and ends its last one; whether all programs come to their end.

    `programs`: int32[stages, operations, 4]; `counts`, `starts`, `ends`: [stages]; `before`, `after`: [slots], the slots from
    which a forward and a backward take their input; seconds: [slots, columns] with one column per micro-batch, or one for all.
    """
    stages = counts.shape[0]
    columns = forward_s.shape[1]
    forwards = np.full((before.shape[0], micro_batches), PENDING)
    inputs = np.full((before.shape[0], micro_batches), PENDING)
    position = np.zeros(stages, dtype=np.int64)
    ends[:] = 0.0
    starts[:] = PENDING
    going = True
    while going:
        going = False
        for stage in range(stages):
            while position[stage] < counts[stage]:
                at = position[stage]
                width = 2 if programs[stage, at, 3] > 0 else 1
                start = ends[stage]
                seconds = 0.0
                possible = True
                for row in range(at, at + width):
                    kind, micro_batch = programs[stage, row, 0], programs[stage, row, 1]
                    slot = programs[stage, row, 2] * stages + stage
                    ready = ready_at(kind, micro_batch, before[slot], after[slot], slot, forwards, inputs)
                    if ready < 0.0:
                        possible = False
                        break
                    start = max(start, ready)
                    column = 0 if columns == 1 else micro_batch
                    seconds += seconds_of(kind, slot, column, forward_s, backward_s, weight_s)
                if not possible:
                    break
                if at == 0:
                    starts[stage] = start
                ends[stage] = start + seconds
                for row in range(at, at + width):
                    kind, micro_batch = programs[stage, row, 0], programs[stage, row, 1]
                    slot = programs[stage, row, 2] * stages + stage
                    if kind == FORWARD:
                        forwards[slot, micro_batch] = ends[stage]
                    elif kind != WEIGHT:
                        inputs[slot, micro_batch] = ends[stage]
                position[stage] += width
                going = True
    return bool((position == counts).all())
