"""Rule sets of frameworks, discovered: every module here that defines `RULE_SET` is one, `RULE_SETS` one a release.

A rule is written once, as a predicate over columns; search, evaluation and exporters all ask the same rule set.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import asdict
from functools import cache
from typing import Any

from solver.errors import FieldError, InvalidProblem
from solver.frameworks.capability_checks import recomputed_per_chunk
from solver.frameworks.columns import default_zero
from solver.frameworks.facts import Facts, read_facts
from solver.frameworks.predicates import balanced_split
from solver.frameworks.rule_set import RuleSet
from solver.frameworks.rules import COLUMN_DEFAULTS, CP_KIND_CODES, RECOMPUTE_CODES, Capabilities, Rule

__all__ = [
    "COLUMN_DEFAULTS",
    "CP_KIND_CODES",
    "RECOMPUTE_CODES",
    "Capabilities",
    "Facts",
    "Rule",
    "RuleSet",
    "balanced_split",
    "default_zero",
    "describe_frameworks",
    "framework_names",
    "framework_versions",
    "get_rule_set",
    "read_facts",
    "recomputed_per_chunk",
]


@cache
def _rule_sets() -> tuple[RuleSet, ...]:
    found = []
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        sets = getattr(module, "RULE_SETS", None) or (getattr(module, "RULE_SET", None),)
        found += [rule_set for rule_set in sets if isinstance(rule_set, RuleSet)]
    return tuple(sorted(found, key=lambda rule_set: rule_set.name))


def framework_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule_set.name for rule_set in _rule_sets()))


def framework_versions(name: str) -> tuple[str, ...]:
    """The versions of a framework that have rules, newest first."""
    return tuple(version for rule_set in _rule_sets() if rule_set.name == name for version in rule_set.versions)


def describe_frameworks() -> list[dict[str, Any]]:
    """Name, versions, capabilities and rules of every rule set, for people and programs that choose one."""
    return [
        {
            "name": rule_set.name,
            "versions": list(rule_set.versions),
            "exports": rule_set.capabilities.exports,
            "capabilities": asdict(rule_set.capabilities),
            "rules": [
                {"id": rule.id, "severity": rule.severity, "text": rule.text, "fires": list(rule.fires)}
                for rule in rule_set.rules
            ],
        }
        for rule_set in _rule_sets()
    ]


def get_rule_set(name: str, version: str = "latest-known") -> RuleSet:
    """The rule set of a framework and version; raises `InvalidProblem` at /framework."""
    named = [rule_set for rule_set in _rule_sets() if rule_set.name == name]
    if not named:
        error = FieldError("/framework/name", "not_supported", f"there are no rules for {name!r} yet", framework_names())
        raise InvalidProblem((error,))
    for rule_set in named:
        if version in rule_set.versions:
            return rule_set
    text = f"no rules for {name} {version}"
    raise InvalidProblem((FieldError("/framework/version", "not_supported", text, framework_versions(name)),))
