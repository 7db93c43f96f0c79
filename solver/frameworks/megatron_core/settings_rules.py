"""All rules over settings, asked together."""

from __future__ import annotations

from typing import Final

from solver.frameworks.megatron_core import settings_grid, settings_pipeline, settings_training
from solver.frameworks.megatron_core.settings import Settings, SettingsRule, broken_rules
from solver.frameworks.megatron_core.versions import LATEST
from solver.plan import Violation

SETTINGS_RULES: Final[tuple[SettingsRule, ...]] = (
    *settings_grid.RULES,
    *settings_pipeline.RULES,
    *settings_training.RULES,
)


def settings_violations(settings: Settings, release: str = LATEST) -> tuple[Violation, ...]:
    """What Megatron refuses, changes silently, or changes and says so; in the order of its ids by kind."""
    return tuple(broken_rules(SETTINGS_RULES, settings, release))
