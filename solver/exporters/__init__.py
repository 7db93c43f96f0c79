"""Exporters, discovered: every module here that defines `EXPORTER` writes plans for one framework."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from solver.errors import FieldError, InvalidProblem, NotExpressible
from solver.exporters.base import Export, Exporter, ExportFile
from solver.layout import Layout
from solver.plan import Plan
from solver.problem.problem import Problem

__all__ = ["Export", "ExportFile", "Exporter", "export", "exporter_names", "expressible", "expressible_in"]


@cache
def _exporters() -> dict[str, Exporter]:
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        exporter = getattr(importlib.import_module(f"{__name__}.{entry.name}"), "EXPORTER", None)
        if isinstance(exporter, Exporter):
            found[exporter.framework] = exporter
    return found


def exporter_names() -> tuple[str, ...]:
    return tuple(sorted(_exporters()))


def _get(framework: str) -> Exporter:
    exporter = _exporters().get(framework)
    if exporter is None:
        text = f"there is no export for {framework!r}"
        raise InvalidProblem((FieldError("/framework", "not_supported", text, exporter_names()),))
    return exporter


def expressible(problem: Problem, layout: Layout, framework: str) -> tuple[FieldError, ...]:
    """What the framework cannot express of the layout, by pointer into {problem, layout}; empty when it can run it."""
    return _get(framework).inexpressible(problem, layout)


def expressible_in(problem: Problem, layout: Layout) -> tuple[str, ...]:
    """Frameworks that can run the layout."""
    return tuple(name for name in exporter_names() if not expressible(problem, layout, name))


def export(problem: Problem, plan: Plan, framework: str) -> Export:
    """Configuration of the plan; raises `NotExpressible` with the fields that have no place in the framework."""
    exporter = _get(framework)
    fields = exporter.inexpressible(problem, plan.layout)
    if fields:
        raise NotExpressible(fields)
    return exporter.export(problem, plan)
