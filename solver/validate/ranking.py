"""Does the prediction put layouts in the right order? Kendall's tau-b and the regret of choosing by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from solver.validate.rows import Row

NEAR_TIE = 0.03
"""pairs whose measurements differ by less are within the noise of repeated runs"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """tau_b None when no pair differs enough; regret_fraction = measured time of the predicted-fastest over the fastest - 1."""

    name: str
    rows: int
    layouts: int
    tau_b: float | None
    regret_fraction: float


def group_name(row: Row) -> str:
    """Rows of one group ask the same question: model, length, gpus, gbs, device, precision, task, attention kernel."""
    parts = (row.model, row.seq_len, row.gpus, row.gbs, row.gpu, row.precision, row.task, row.flash_attn)
    return " / ".join("-" if part is None else str(part) for part in parts)


def layout_name(row: Row) -> str:
    """What makes two rows of a group different layouts."""
    names = ("tp", "pp", "dp", "cp", "ep", "sp", "vpp", "mbs", "recompute", "zero_stage", "sharding")
    return repr([getattr(row, name) for name in names])


def rank(rows: Sequence[Row], predicted: Sequence[float], measured: Sequence[float]) -> list[Ranking]:
    """One entry per group with at least two layouts."""
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(group_name(row), []).append(index)
    found = []
    for name, members in groups.items():
        layouts = {layout_name(rows[index]) for index in members}
        if len(layouts) < 2:
            continue
        fastest = min(measured[index] for index in members)
        chosen = min(members, key=lambda index: (predicted[index], measured[index]))
        tau = kendall_tau_b([predicted[index] for index in members], [measured[index] for index in members])
        found.append(Ranking(name, len(members), len(layouts), tau, measured[chosen] / fastest - 1.0))
    return found


def kendall_tau_b(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """tau-b over pairs whose measurements differ by more than NEAR_TIE: ties are possible in the prediction only."""
    balance = pairs = tied = 0
    for i, j in combinations(range(len(measured)), 2):
        low, high = sorted((measured[i], measured[j]))
        if high / low - 1.0 <= NEAR_TIE:
            continue
        pairs += 1
        difference = (predicted[i] - predicted[j]) * (measured[i] - measured[j])
        tied += difference == 0.0
        balance += (difference > 0.0) - (difference < 0.0)
    if pairs == tied:
        return None
    return balance / math.sqrt((pairs - tied) * pairs)
