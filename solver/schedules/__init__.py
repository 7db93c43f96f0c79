"""Pipeline schedules: one file each, found by name of its `kind`.

A schedule is the order in which every rank runs the forwards and backwards of its chunks, and what that order means for memory.
Virtual stage k = chunk * stages + stage. Adding a schedule means adding a module here with a member `SCHEDULE`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from solver.errors import SolverError

OperationKind = Literal["F", "B"]


class Operation(NamedTuple):
    """The forward (F) or backward (B) of one micro-batch through one chunk of a rank."""

    kind: OperationKind
    micro_batch: int
    chunk: int


@runtime_checkable
class Schedule(Protocol):
    """What a schedule module offers as its `SCHEDULE`."""

    @property
    def kind(self) -> str:
        """The name used in a layout."""

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        """Why this schedule cannot run such a pipeline, or None if it can."""

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        """All operations of one rank in the order it runs them."""

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        """Most micro-batches whose activations a rank holds at once, in units of one micro-batch of its whole stage."""


class UnknownSchedule(SolverError):
    """No schedule of that name exists; `allowed` lists those that do."""

    code = "unknown_schedule"

    def __init__(self, kind: str, allowed: tuple[str, ...]) -> None:
        self.kind = kind
        self.allowed = allowed
        super().__init__(f"unknown schedule {kind!r}; known: {', '.join(allowed)}")

    def __reduce__(self) -> tuple[type[UnknownSchedule], tuple[str, tuple[str, ...]]]:
        return (type(self), (self.kind, self.allowed))


@cache
def schedules() -> Mapping[str, Schedule]:
    """Every schedule of this package by its kind."""
    found: dict[str, Schedule] = {}
    for entry in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        schedule = getattr(importlib.import_module(f"{__name__}.{entry.name}"), "SCHEDULE", None)
        if schedule is not None:
            assert isinstance(schedule, Schedule), f"{entry.name}.SCHEDULE is not a Schedule"
            assert schedule.kind not in found, f"two schedules are called {schedule.kind}"
            found[schedule.kind] = schedule
    return MappingProxyType(found)


def get_schedule(kind: str) -> Schedule:
    """The schedule of that kind; raises UnknownSchedule."""
    found = schedules()
    if kind not in found:
        raise UnknownSchedule(kind, tuple(found))
    return found[kind]
