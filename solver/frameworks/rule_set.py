"""A framework in one version range: its rules and capabilities, asked for arrays of layouts or for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.frameworks.capability_checks import capability_violations
from solver.frameworks.columns import layout_rows, uniform_row
from solver.frameworks.facts import Facts, read_facts
from solver.frameworks.group_checks import group_violations
from solver.frameworks.layout_checks import layout_violations
from solver.frameworks.nearest import nearest_values
from solver.frameworks.rules import Bools, Capabilities, Columns, Rule, complete_columns, spoken
from solver.layout import SCHEDULE_KINDS, Layout, UniformLayout
from solver.plan import Violation
from solver.problem.problem import Problem

LayoutCheck = Callable[[Problem, Layout], Iterator[Violation]]


@dataclass(frozen=True)
class RuleSet:
    """`layout_checks` are rules of this framework that relate stages to each other."""

    name: str
    versions: tuple[str, ...]
    capabilities: Capabilities
    rules: tuple[Rule, ...]
    layout_checks: tuple[LayoutCheck, ...] = ()

    def legal(self, problem: Problem, columns: Mapping[str, Any]) -> Bools:
        """Where no rule refuses or silently changes the layout; columns of `COLUMN_DEFAULTS` may be left out."""
        facts = read_facts(problem)
        full = complete_columns(columns, facts)
        result = np.ones(full["tp"].shape, dtype=np.bool_)
        for rule in self._forbidding():
            result &= rule.ok(facts, full)
        return result

    def violations(self, problem: Problem, layout: Layout | UniformLayout) -> tuple[Violation, ...]:
        """Everything that makes the layout illegal, each rule once; empty when it is legal.

        A layout whose own arithmetic is wrong (L01 ... L09) is not asked about the framework.
        """
        facts = read_facts(problem)
        if isinstance(layout, UniformLayout):
            row = uniform_row(problem, layout, facts)
            unsound = tuple(group_violations(problem, layout, row["dp"]))
            return unsound or tuple(self._broken(self._forbidding(), facts, [(0, 0, row)]))
        unsound = tuple(layout_violations(problem, layout, facts))
        if unsound:
            return unsound
        found = list(capability_violations(problem, layout, self.capabilities))
        for check in self.layout_checks:
            found += check(problem, layout)
        return (*found, *self._broken(self._forbidding(), facts, layout_rows(layout)))

    def changes(self, problem: Problem, layout: Layout | UniformLayout) -> tuple[Violation, ...]:
        """What the framework changes and says so; a layout with changes is legal, an export carries the changed value."""
        facts = read_facts(problem)
        rows = [(0, 0, uniform_row(problem, layout, facts))] if isinstance(layout, UniformLayout) else layout_rows(layout)
        return tuple(self._broken([rule for rule in self.rules if rule.severity == "changed"], facts, rows))

    def _forbidding(self) -> list[Rule]:
        return [rule for rule in self.rules if rule.severity != "changed"]

    def _broken(
        self, rules: Sequence[Rule], facts: Facts, rows: Sequence[tuple[int, int, dict[str, int]]]
    ) -> Iterator[Violation]:
        names = rows[0][2].keys()
        columns = complete_columns({name: np.array([row[name] for _, _, row in rows]) for name in names}, facts)
        for rule in rules:
            bad = np.flatnonzero(~rule.ok(facts, columns))
            if bad.size:
                yield self._violation(rule, facts, columns, rows, int(bad[0]))

    def _violation(
        self, rule: Rule, facts: Facts, columns: Columns, rows: Sequence[tuple[int, int, dict[str, int]]], at: int
    ) -> Violation:
        row = {name: int(values[at]) for name, values in columns.items()}
        values = {name: spoken(name, row[name]) for name in rule.fields}
        if len(rows) > 1:
            values |= {"stage": rows[at][0], "part": rows[at][1]}
        nearest = nearest_values(rule, self.rules, facts, row)
        message = rule.text.format(**(facts.words() | row | {"schedule": SCHEDULE_KINDS[row["schedule"]]}))
        return Violation(rule=rule.id, severity=rule.severity, message=message, values=values, nearest=nearest, fires=rule.fires)
