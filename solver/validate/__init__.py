"""Predictions of measured runs, from the columns that a source publishes (DESIGN 3.6)."""

from solver.validate.cases import Case, case_of
from solver.validate.constants import Constants
from solver.validate.harness import Harness
from solver.validate.measured import measured_step
from solver.validate.predict import Predicted, predict
from solver.validate.refusal import Refused
from solver.validate.report import Comparison, Report, validate
from solver.validate.rows import COLUMNS as RUN_COLUMNS
from solver.validate.rows import Row, parse_rows

__all__ = [
    "RUN_COLUMNS",
    "Case",
    "Comparison",
    "Constants",
    "Harness",
    "Predicted",
    "Refused",
    "Report",
    "Row",
    "case_of",
    "measured_step",
    "parse_rows",
    "predict",
    "validate",
]
