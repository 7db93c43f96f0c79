"""Compiled packing of documents into rows."""

from __future__ import annotations

import numpy as np

from solver.schedules.kernels import compiled

RAMP_TOKENS = 400.0
"""tokens by which a flash kernel's work exceeds the square of a document's length (see `solver.cost.scenarios`)"""


@compiled
def pack_rows(lengths: np.ndarray, row_tokens: int, work: np.ndarray) -> int:
    """Put each document into the first row with room, if any, and add to that row's attention `work`; the tokens packed."""
    free = np.full(work.shape[0], row_tokens, dtype=np.int64)
    tokens = 0
    for length in lengths:
        for row in range(work.shape[0]):
            if free[row] >= length:
                free[row] -= length
                work[row] += float(length) * (float(length) + RAMP_TOKENS)
                tokens += length
                break
    return tokens
