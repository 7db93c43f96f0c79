"""Optimizer states: ZeRO levels, offload, types other than fp32."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.frameworks.facts import Facts
from solver.frameworks.rules import Bools, Columns, Rule

ZERO_LEVELS: Final = (0, 1)
OFFLOAD_GRID: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def _special_states_have_sharded_adam(facts: Facts, columns: Columns) -> Bools:
    """Offload and states other than fp32 need the precision-aware optimizer: Adam behind the distributed optimizer."""
    plain = np.asarray(columns["offload_optimizer_percent"] == 0)
    if facts.optimizer not in ("adam", "adamw"):
        return plain
    return np.asarray((plain & facts.plain_states) | (columns["zero"] == 1))


def _zero_is_known(_: Facts, columns: Columns) -> Bools:
    return np.isin(columns["zero"], ZERO_LEVELS)


def _offload_on_grid(_: Facts, columns: Columns) -> Bools:
    return np.isin(columns["offload_optimizer_percent"], [round(100 * part) for part in OFFLOAD_GRID])


RULES: Final = (
    Rule(
        "MC32", "refused", ("offload_optimizer_percent", "zero"),
        "offload and states other than fp32 need the precision-aware optimizer: adam with ZeRO 1, not {optimizer}, {zero}",
        _special_states_have_sharded_adam, fires=("arguments",),
    ),
    Rule("CAP-zero", "refused", ("zero",), "ZeRO {zero} is not available: the distributed optimizer is ZeRO 1", _zero_is_known),
    Rule("CAP-offload", "refused", ("offload_optimizer_percent",), "offload {offload_optimizer_percent} % is not on the grid",
         _offload_on_grid),
)  # fmt: skip
