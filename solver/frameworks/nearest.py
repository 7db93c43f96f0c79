"""The nearest legal values of the columns that a broken rule names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from solver.frameworks.facts import Facts
from solver.frameworks.rules import Bools, Ints, Rule, complete_columns, spoken
from solver.layout import SCHEDULE_KINDS

_MOST_VALUES = 8
_FLAGS = ("sequence_parallel", "cp_kind")
_LISTS: Mapping[str, tuple[int, ...]] = {
    "zero": (0, 1, 2, 3),
    "recompute": (0, 1, 2),
    "schedule": tuple(range(len(SCHEDULE_KINDS))),
    "offload_optimizer_percent": (0, 25, 50, 75, 100),
}
_HIGHEST = 4096


def nearest_values(rule: Rule, rules: Sequence[Rule], facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    """Per field of the rule: values that make the layout legal, all else kept; failing that, values this rule accepts."""
    found: dict[str, Any] = {}
    for field in rule.fields:
        values = _candidates(field, row)
        trial = complete_columns({name: value for name, value in row.items() if name != "step_rows"} | {field: values}, facts)
        about_field = [other for other in rules if field in other.fields]
        for considered in (rules, about_field, (rule,)):
            good = values[_all_ok(considered, facts, trial) & rule.ok(facts, trial)]
            if good.size:
                found[field] = [spoken(field, value) for value in _closest(good, row[field])]
                break
    if rule.hint is not None:
        found |= rule.hint(facts, row)
    return found


def _candidates(field: str, row: Mapping[str, int]) -> Ints:
    if field in _FLAGS:
        return np.array([0, 1], dtype=np.int64)
    if field in _LISTS:
        return np.array(_LISTS[field], dtype=np.int64)
    return np.arange(1, min(_HIGHEST, max(64, 4 * row[field], row["devices"])) + 1, dtype=np.int64)


def _all_ok(rules: Sequence[Rule], facts: Facts, columns: Mapping[str, Ints]) -> Bools:
    result = np.ones(columns["tp"].shape, dtype=np.bool_)
    for rule in rules:
        if rule.severity != "changed":
            result &= rule.ok(facts, columns)
    return result


def _closest(values: Ints, value: int) -> list[int]:
    def distance(candidate: int) -> float:
        return abs(log(max(candidate, 0.5) / max(value, 0.5)))

    return sorted(sorted(values.tolist(), key=distance)[:_MOST_VALUES])
