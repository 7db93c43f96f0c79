"""What a framework's rule is: one vectorised predicate over columns, used by search, evaluation and export alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from solver.frameworks.facts import Facts
from solver.layout import SCHEDULE_KINDS

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Columns = Mapping[str, Ints]
Severity = Literal["refused", "silently_changed", "changed"]
Check = Literal["arguments", "config", "build", "first_step"]

COLUMN_DEFAULTS: Final[Mapping[str, int]] = {
    "tp": 1,
    "cp": 1,
    "dp": 1,
    "pp": 1,
    "ep": 1,
    "etp": 1,
    "vpp": 1,
    "mbs": 1,
    "micro_batches": 1,
    "zero": 0,
    "recompute": 0,
    "sequence_parallel": 0,
    "cp_kind": 0,
    "offload_optimizer_percent": 0,
    "schedule": 0,
    "explicit_split": 1,
    "empty_chunks": 0,
    "optimizer_replicas": 1,
}
"""Columns of a layout that a caller may leave out; `devices`, `step_rows` and `schedule` are derived from the others.

explicit_split 0: the framework itself divides the layers evenly. empty_chunks: (virtual) stages without layers.
optimizer_replicas: copies of the sharded optimizer states. schedule: its code, the index in `SCHEDULE_KINDS`. Other enumerations
are the indices of the code tuples below.
"""

RECOMPUTE_CODES: Final = ("none", "selective", "full")
CP_KIND_CODES: Final = ("ring", "all_to_all")
_WORDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "recompute": RECOMPUTE_CODES,
    "cp_kind": CP_KIND_CODES,
    "schedule": SCHEDULE_KINDS,
    "sequence_parallel": (False, True),
}
ONE_F_ONE_B, INTERLEAVED = (SCHEDULE_KINDS.index(kind) for kind in ("1f1b", "interleaved"))


def spoken(column: str, code: int) -> Any:
    """The value of a column as a layout writes it: kinds by name, flags as true or false, numbers as they are."""
    return _WORDS[column][code] if column in _WORDS else code


def complete_columns(columns: Mapping[str, Any], facts: Facts) -> dict[str, Ints]:
    """All columns at one length: `step_rows` = dp x mbs x micro_batches, `devices` = the cluster's, `schedule` 1f1b or, with
    several chunks, interleaved, unless given."""
    given = {name: np.asarray(values, dtype=np.int64) for name, values in columns.items()}
    length = max((values.size for values in given.values()), default=1)
    full = {name: np.broadcast_to(given.get(name, np.int64(value)), (length,)) for name, value in COLUMN_DEFAULTS.items()}
    for name, values in given.items():
        full[name] = np.broadcast_to(values, (length,))
    full.setdefault("devices", np.broadcast_to(np.int64(facts.devices), (length,)))
    if "schedule" not in given:
        full["schedule"] = np.where(full["vpp"] > 1, INTERLEAVED, ONE_F_ONE_B)
    if "step_rows" not in full:
        full["step_rows"] = full["dp"] * full["mbs"] * full["micro_batches"]
    return full


@dataclass(frozen=True)
class Rule:
    """`ok` is true where the rule holds; `fields` are the columns a user can change to obey it.

    `text` is a format string over columns and facts. `hint` adds a legal alternative that is not a value of one column.
    `fires` names the framework's own checks that notice, in order: its arguments, its config, the building of groups and
    layers, its first step. The rule holds for releases from `since` and before `until`.
    """

    id: str
    severity: Severity
    fields: tuple[str, ...]
    text: str
    ok: Callable[[Facts, Columns], Bools]
    hint: Callable[[Facts, Mapping[str, int]], dict[str, Any]] | None = None
    fires: tuple[Check, ...] = ()
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True)
class Capabilities:
    """What layouts a framework can run beyond equal stages of equal replicas.

    uneven_layers: stages hold `any` numbers of layers, only the first and the last (`ends`) others than the equal rest, or `no`.
    schedules: kinds it has. ragged_interleaving: interleaved micro-batches need not be a multiple of pp. per_layer_recompute:
    `any` layer alone, `per_stage_count` = the first N layers of every (virtual) stage, one N for all of them, or `none`.
    unlike_devices: `no`, `one_vendor` (equal degrees and shares) or `any`.
    """

    uneven_layers: Literal["no", "ends", "any"]
    schedules: tuple[str, ...]
    ragged_interleaving: bool
    per_stage_degrees: bool
    unequal_shares: bool
    per_layer_recompute: Literal["none", "per_stage_count", "any"]
    zero_levels: tuple[int, ...]
    unlike_devices: Literal["no", "one_vendor", "any"]
    cp_kinds: tuple[str, ...]
    offload_optimizer_grid: tuple[float, ...]
    expert_tensor_parallel: bool
    exports: bool
