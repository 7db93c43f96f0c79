"""Pipeline schedules: one file each, found by name of its `kind`.

A schedule is the order in which every rank runs the forwards and backwards of its chunks, and what that order means for time,
memory and copies of the parameters. Rank i keeps `vpp` chunks; the layers are cut into `pieces` in the order in which a
micro-batch passes them, and `piece` says which of them a chunk is. A chunk has the slot chunk * stages + stage in every array of
the cost model. Adding a schedule means adding a module here with a member `SCHEDULE`; where it is to be priced,
`solver.schedules.dispatch` names its compiled functions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from solver.errors import SolverError

OperationKind = Literal["F", "B", "I", "W"]


class Operation(NamedTuple):
    """One micro-batch through one chunk of a rank: forward F, backward B, or its halves: input gradients I, weight gradients W.

    `joined`: overlapped with the operation that follows; both start when both can, and end together.
    """

    kind: OperationKind
    micro_batch: int
    chunk: int
    joined: bool = False


@runtime_checkable
class Schedule(Protocol):
    """What a schedule module offers as its `SCHEDULE`."""

    @property
    def kind(self) -> str:
        """The name used in a layout."""

    @property
    def code(self) -> int:
        """The number that stands for it in arrays and compiled functions."""

    @property
    def chunks(self) -> int | None:
        """Chunks of a rank (`vpp`), None where that is a choice."""

    @property
    def copies(self) -> int:
        """Ranks of a pipeline that hold each layer."""

    @property
    def post_validated(self) -> bool:
        """Whether a rank goes on to the next step without waiting for the others: the step is the longest span of a rank."""

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        """Why this schedule cannot run such a pipeline, or None if it can."""

    def pieces(self, stages: int, vpp: int) -> int:
        """Parts into which the layers are cut."""

    def piece(self, chunk: int, stage: int, stages: int) -> int:
        """The part that a chunk holds."""

    def carries(self, chunk: int, micro_batch: int, micro_batches: int) -> bool:
        """Whether a micro-batch passes this chunk of the ranks."""

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        """All operations of one rank in the order it runs them."""

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        """Most micro-batches whose activations a rank holds at once, in units of one micro-batch of all its chunks.

        Activations live from the forward to the end of the backward (of its W half where it is split).
        """

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        """Step of equal stages with free transfers from seconds of one micro-batch on all chunks of a rank; None: not known."""


class UnknownSchedule(SolverError):
    """No schedule of that name exists; `allowed` lists those that do."""

    code = "unknown_schedule"

    def __init__(self, kind: str, allowed: tuple[str, ...]) -> None:
        self.kind = kind
        self.allowed = allowed
        super().__init__(f"unknown schedule {kind!r}; known: {', '.join(allowed)}")

    def __reduce__(self) -> tuple[type[UnknownSchedule], tuple[str, tuple[str, ...]]]:
        return (type(self), (self.kind, self.allowed))


class InOrder:
    """What schedules share whose micro-batches all pass the chunks round by round: chunk c of rank i is piece c * stages + i."""

    copies = 1
    post_validated = False

    def pieces(self, stages: int, vpp: int) -> int:
        return stages * vpp

    def piece(self, chunk: int, stage: int, stages: int) -> int:
        return chunk * stages + stage

    def carries(self, chunk: int, micro_batch: int, micro_batches: int) -> bool:
        return True


class VShaped(InOrder):
    """As `InOrder`, but the second chunks go back from the last rank to the first: rank 0 holds the first and the last piece."""

    def piece(self, chunk: int, stage: int, stages: int) -> int:
        return stage if chunk == 0 else 2 * stages - 1 - stage


@cache
def schedules() -> Mapping[str, Schedule]:
    """Every schedule of this package by its kind."""
    found: dict[str, Schedule] = {}
    for entry in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        schedule = getattr(importlib.import_module(f"{__name__}.{entry.name}"), "SCHEDULE", None)
        if schedule is not None:
            assert isinstance(schedule, Schedule), f"{entry.name}.SCHEDULE is not a Schedule"
            assert schedule.kind not in found, f"two schedules are called {schedule.kind}"
            assert schedule.code not in {other.code for other in found.values()}, f"two schedules have code {schedule.code}"
            found[schedule.kind] = schedule
    return MappingProxyType(found)


def get_schedule(kind: str) -> Schedule:
    """The schedule of that kind; raises UnknownSchedule."""
    found = schedules()
    if kind not in found:
        raise UnknownSchedule(kind, tuple(found))
    return found[kind]
