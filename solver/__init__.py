"""Exact search of hybrid parallel training layouts: the only names others may import.

Heavy parts (cost kernels, search) are loaded on first use, so that a process which only checks documents stays small.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from solver.catalog import devices, models, profiles
from solver.errors import CertificationFailed, FieldError, IllegalLayout, InvalidProblem, NotExpressible, SolverError
from solver.exporters import Export, export, exporter_names
from solver.frameworks import framework_names, framework_versions, get_rule_set
from solver.importers import ImportedLengths, Wish, import_hf_config, import_lengths
from solver.layout import Layout, UniformLayout
from solver.layout_parse import parse_layout
from solver.plan import Evaluation, Plan, Progress, Result
from solver.problem import (
    Problem,
    count_model_parameters,
    load_document,
    normal_form,
    normalise,
    parameter_count,
    parse_problem,
    problem_digest,
    request_digest,
)
from solver.versions import versions

if TYPE_CHECKING:
    from solver.balance.ledger import ledger
    from solver.calibrate import Measurements, apply_profile, calibrate
    from solver.certify import certify
    from solver.evaluate import Evaluator, evaluate
    from solver.replay import replay
    from solver.search import Outcome, search, skeletons_at_least
    from solver.simulate import simulate
    from solver.validate import RUN_COLUMNS, Comparison, Report, validate
    from solver.warm import warm

_LAZY = {
    "Comparison": "solver.validate",
    "Evaluator": "solver.evaluate",
    "Measurements": "solver.calibrate",
    "Outcome": "solver.search",
    "RUN_COLUMNS": "solver.validate",
    "Report": "solver.validate",
    "apply_profile": "solver.calibrate",
    "calibrate": "solver.calibrate",
    "certify": "solver.certify",
    "evaluate": "solver.evaluate",
    "ledger": "solver.balance.ledger",
    "replay": "solver.replay",
    "search": "solver.search",
    "skeletons_at_least": "solver.search",
    "simulate": "solver.simulate",
    "validate": "solver.validate",
    "warm": "solver.warm",
}

__all__ = [
    "RUN_COLUMNS",
    "CertificationFailed",
    "Comparison",
    "Evaluation",
    "Evaluator",
    "Export",
    "FieldError",
    "IllegalLayout",
    "ImportedLengths",
    "InvalidProblem",
    "Layout",
    "Measurements",
    "NotExpressible",
    "Outcome",
    "Plan",
    "Problem",
    "Progress",
    "Report",
    "Result",
    "SolverError",
    "UniformLayout",
    "Wish",
    "apply_profile",
    "calibrate",
    "certify",
    "count_model_parameters",
    "devices",
    "evaluate",
    "export",
    "exporter_names",
    "framework_names",
    "framework_versions",
    "get_rule_set",
    "import_hf_config",
    "import_lengths",
    "ledger",
    "load_document",
    "models",
    "normal_form",
    "normalise",
    "parameter_count",
    "parse_layout",
    "parse_problem",
    "problem_digest",
    "profiles",
    "replay",
    "request_digest",
    "search",
    "simulate",
    "skeletons_at_least",
    "validate",
    "versions",
    "warm",
]


class _Package(ModuleType):
    """Entry points share names with the modules that define them: the package keeps the functions, `sys.modules` the modules."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _LAZY and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'solver' has no attribute {name!r}")
        return getattr(import_module(_LAZY[name]), name)


sys.modules[__name__].__class__ = _Package
