"""Compiled packing of documents into rows."""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled

RAMP_TOKENS = 400.0
"""tokens by which a flash kernel's work exceeds the square of a document's length (see `solver.cost.scenarios`)"""


@compiled
def pack_rows(lengths: np.ndarray, row_tokens: int, rows: int, row_of: np.ndarray) -> None:
    """Write the first row with room for each document in turn, -1 where none has."""
    free = np.full(rows, row_tokens, dtype=np.int64)
    for index in range(lengths.shape[0]):
        row_of[index] = -1
        for row in range(rows):
            if free[row] >= lengths[index]:
                free[row] -= lengths[index]
                row_of[index] = row
                break
