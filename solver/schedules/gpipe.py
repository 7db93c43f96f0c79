"""GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards, each in the order of the micro-batches.

Bubble of equal stages (p-1)(F+B); every stage holds all m micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.compiling import compiled
from solver.schedules import InOrder, Operation
from solver.schedules.kernels import Floats

CODE = 2


@compiled
def gpipe_in_flight(micro_batches: int) -> float:
    """All micro-batches."""
    return float(micro_batches)


@compiled
def gpipe_ends(forward_s: Floats, backward_s: Floats, micro_batches: int, ends: Floats) -> None:
    """Write the end of the last backward of every stage; seconds [stages, columns], one column per micro-batch or one for all.

    Micro-batch by micro-batch down the stages, then up: a stage starts once it is free and its input exists.
    """
    stages, columns = forward_s.shape
    ends[:] = 0.0
    for q in range(micro_batches):
        column = 0 if columns == 1 else q
        made = 0.0
        for stage in range(stages):
            made = max(made, ends[stage]) + forward_s[stage, column]
            ends[stage] = made
    for q in range(micro_batches):
        column = 0 if columns == 1 else q
        made = 0.0
        for stage in range(stages - 1, -1, -1):
            made = max(made, ends[stage]) + backward_s[stage, column]
            ends[stage] = made


@dataclass(frozen=True)
class GPipe(InOrder):
    kind: str = "gpipe"
    code: int = CODE
    chunks: int | None = 1

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        return None if vpp == 1 else f"gpipe runs one chunk per stage, not {vpp}"

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        forwards = [Operation("F", j, 0) for j in range(micro_batches)]
        return forwards + [Operation("B", j, 0) for j in range(micro_batches)]

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(micro_batches)

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        return (micro_batches + stages - 1) * (forward_s + input_s + weight_s)


SCHEDULE = GPipe()
