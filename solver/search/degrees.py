"""Data-parallel degrees, micro-batches and global batches that go together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from solver.search.grid import Grid

EVERY_DEGREE_UP_TO = 16
"""replicas of one of two groups: every number up to this one, beyond it those that divide the room or fill it"""


@dataclass(frozen=True, slots=True, eq=False)
class Degrees:
    """Arrays of equal length, rising in `dp`: dp x mbs x micro_batches = rows."""

    dp: np.ndarray
    mbs: np.ndarray
    micro_batches: np.ndarray
    rows: np.ndarray

    def up_to(self, most_dp: int) -> Degrees:
        """Those with at most `most_dp` replicas."""
        end = int(np.searchsorted(self.dp, most_dp, side="right"))
        return Degrees(self.dp[:end], self.mbs[:end], self.micro_batches[:end], self.rows[:end])


def degree_table(grid: Grid, most_dp: int) -> Degrees:
    """All combinations with at most `most_dp` replicas; the batch is the allowed one nearest to the wanted one."""
    dp, mbs = np.meshgrid(_replicas(grid, most_dp), np.array(grid.mbs, dtype=np.int64), indexing="ij")
    dp, mbs = dp.ravel(), mbs.ravel()
    rows = nearest_rows(grid, dp * mbs)
    keep = rows > 0
    dp, mbs, rows = dp[keep], mbs[keep], rows[keep]
    return Degrees(dp=dp, mbs=mbs, micro_batches=rows // (dp * mbs), rows=rows)


def _replicas(grid: Grid, most_dp: int) -> np.ndarray:
    dp = np.arange(1, most_dp + 1, dtype=np.int64)
    return dp if grid.dp_allowed is None else dp[np.isin(dp, grid.dp_allowed)]


def nearest_rows(grid: Grid, unit: np.ndarray) -> np.ndarray:
    """The multiple of `unit` rows nearest to the wanted batch within its tolerance (the smaller of two), 0 when there is none."""
    batch = grid.batch
    if batch.listed is not None:
        found = np.zeros(unit.shape, dtype=np.int64)
        for rows in sorted(batch.listed, key=lambda value: (abs(value - batch.wanted), value)):
            fits = (found == 0) & (rows % unit == 0) & (batch.least <= rows <= batch.most)
            found[fits] = rows
        return found
    below = batch.wanted // unit * unit
    above = below + unit
    low = np.where((below >= batch.least) & (below > 0), below, 0)
    high = np.where(above <= batch.most, above, 0)
    first = (low > 0) & ((high == 0) | (batch.wanted - below <= above - batch.wanted))
    result: np.ndarray = np.where(first, low, high)
    return result


def side_degrees(room: int) -> np.ndarray:
    """Replicas to try on one of two groups with room for `room`."""
    small = set(range(1, min(room, EVERY_DEGREE_UP_TO) + 1))
    return np.array(sorted(small | {d for d in range(EVERY_DEGREE_UP_TO + 1, room + 1) if room % d == 0}), dtype=np.int64)


@lru_cache(maxsize=1 << 18)
def count_shares(one: int, two: int, micro_batches: int, unit: int, least: int) -> int:
    """(a, b), multiples of `unit` and at least `least` >= 1, with one x a + two x b = micro_batches."""
    first, second = one * unit, two * unit
    common = gcd(first, second)
    if micro_batches % common:
        return 0
    first, second, total = first // common, second // common, micro_batches // common
    least = -(-least // unit)
    # a / unit runs over one residue class modulo `second`
    start = (total * pow(first, -1, second)) % second if second > 1 else 0
    start += -(-max(0, least - start) // second) * second
    most = (total - second * least) // first
    return 0 if start > most else (most - start) // second + 1
