"""The eight steps that DualPipe and DualPipeV share (deepseek-ai/DualPipe, dualpipe.py and dualpipev.py).

Two streams of micro-batches ("phases") meet on every rank. `half` counts the ranks from the place where a stream enters to the
one where both meet, `near` is a rank's number along that way; a forward of one stream is overlapped with a backward of the other.
"""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled
from solver.schedules.programs import BACKWARD, FORWARD, INPUT, WEIGHT, put


@compiled
def dual_order(half: int, near: int, mains: int, flip: int, offset: int, program: np.ndarray) -> int:
    """Write the operations of a rank; how many there are.

    `mains`: rounds of the main step beyond near + 1. Phase x runs chunk x ^ `flip`; micro-batches of chunk 1 count from `offset`.
    """
    forwards, backwards = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    owed = np.zeros((2 * half + 4, 2), dtype=np.int64)  # (micro-batch, chunk) of W's to be run
    queue = np.zeros(2, dtype=np.int64)  # W's put off, W's run
    count = 0
    for _ in range(2 * (half - near - 1)):
        count = forward(program, count, 0 ^ flip, offset, 0, forwards)
    for _ in range(near + 1):
        count = forward(program, count, 0 ^ flip, offset, 0, forwards)
        count = forward(program, count, 1 ^ flip, offset, 0, forwards)
    for _ in range(half - near - 1):
        count = backward(program, count, 1 ^ flip, offset, True, backwards, owed, queue)
        count = weight(program, count, owed, queue)
        count = forward(program, count, 1 ^ flip, offset, 0, forwards)
    for index in range(mains + near + 1):
        apart = index == 0 and near == half - 1  # where the streams meet the first pair is not overlapped
        count = forward(program, count, 0 ^ flip, offset, 0 if apart else 1, forwards)
        count = backward(program, count, 1 ^ flip, offset, False, backwards, owed, queue)
        count = forward(program, count, 1 ^ flip, offset, 1, forwards)
        count = backward(program, count, 0 ^ flip, offset, False, backwards, owed, queue)
    for _ in range(half - near - 1):
        count = backward(program, count, 1 ^ flip, offset, False, backwards, owed, queue)
        count = forward(program, count, 1 ^ flip, offset, 1, forwards)
        count = backward(program, count, 0 ^ flip, offset, False, backwards, owed, queue)
    split = False
    for index in range(near + 1):
        if index == (near + 1) // 2 and near % 2 == 1:
            split = True
        count = backward(program, count, 1 ^ flip, offset, split, backwards, owed, queue)
        if index == (near + 1) // 2 and near % 2 == 0:
            split = True
        count = backward(program, count, 0 ^ flip, offset, split, backwards, owed, queue)
    for _ in range(half - near - 1):
        count = weight(program, count, owed, queue)
        count = backward(program, count, 0 ^ flip, offset, True, backwards, owed, queue)
    while queue[1] < queue[0]:
        count = weight(program, count, owed, queue)
    return count


@compiled
def forward(program: np.ndarray, count: int, chunk: int, offset: int, joined: int, done: np.ndarray) -> int:
    """The next forward of a chunk."""
    micro_batch = done[chunk] + offset * chunk
    done[chunk] += 1
    return put(program, count, FORWARD, micro_batch, chunk, joined)


@compiled
def backward(
    program: np.ndarray,
    count: int,
    chunk: int,
    offset: int,
    split: bool,
    done: np.ndarray,
    owed: np.ndarray,
    queue: np.ndarray,
) -> int:
    """The next backward of a chunk, whole or its input half with the weight half put off."""
    micro_batch = done[chunk] + offset * chunk
    done[chunk] += 1
    if not split:
        return put(program, count, BACKWARD, micro_batch, chunk, 0)
    row = queue[0] % owed.shape[0]
    owed[row, 0] = micro_batch
    owed[row, 1] = chunk
    queue[0] += 1
    return put(program, count, INPUT, micro_batch, chunk, 0)


@compiled
def weight(program: np.ndarray, count: int, owed: np.ndarray, queue: np.ndarray) -> int:
    """The oldest weight half that was put off."""
    row = queue[1] % owed.shape[0]
    queue[1] += 1
    return put(program, count, WEIGHT, owed[row, 0], owed[row, 1], 0)
