"""What an export is, and what every exporter offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solver.errors import FieldError
from solver.layout import Layout, Record
from solver.plan import Plan
from solver.problem.problem import Problem


class ExportFile(Record):
    path: str
    media_type: str
    content: str


class Export(Record):
    """Files to put side by side, and the command that starts them."""

    framework: str
    version: str
    files: tuple[ExportFile, ...]
    command: str


@dataclass(frozen=True)
class Exporter:
    """`inexpressible` names what a layout asks for that the framework has no field for; empty means `export` succeeds."""

    framework: str
    inexpressible: Callable[[Problem, Layout], tuple[FieldError, ...]]
    export: Callable[[Problem, Plan], Export]
