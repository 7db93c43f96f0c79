"""DualPipeV (deepseek-ai/DualPipe, dualpipev.py; Qi et al. "cut in half"): DualPipe folded to a V, one copy of the parameters.

Rank i holds pieces i and 2p-1-i; forwards of one arm are overlapped with backwards of the other. Bubble of equal pieces where
F = I = W: (p-1)(F&B + B - 3W) in seconds of one piece; 2p+1 pieces in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.compiling import compiled
from solver.schedules import Operation, VShaped
from solver.schedules.dual_order import dual_order
from solver.schedules.programs import operations

CODE = 7
EQUAL = 1e-12


@compiled
def dualpipe_v_in_flight(stages: int) -> float:
    """In units of both pieces of a rank."""
    return stages + 0.5


@compiled
def dualpipe_v_order(stage: int, stages: int, micro_batches: int, program: np.ndarray) -> int:
    """Write the operations of a rank into int32[6 m, 4]; how many there are."""
    return dual_order(stages, stage, micro_batches - 2 * stages, 0, 0, program)


@dataclass(frozen=True)
class DualPipeV(VShaped):
    kind: str = "dualpipe_v"
    code: int = CODE
    chunks: int | None = 2

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        if vpp != 2:
            return f"dualpipe_v runs two chunks per stage, not {vpp}"
        if micro_batches < 2 * stages:
            return f"dualpipe_v needs at least {2 * stages} micro-batches, not {micro_batches}"
        return None

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        program = np.zeros((6 * micro_batches, 4), dtype=np.int32)
        return operations(program[: dualpipe_v_order(stage, stages, micro_batches, program)])

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(dualpipe_v_in_flight(stages))

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        if max(abs(forward_s - input_s), abs(input_s - weight_s)) > EQUAL * forward_s:
            return None
        whole_s = forward_s + input_s + weight_s
        return micro_batches * whole_s + (stages - 1) * 0.5 * (whole_s + input_s - 2.0 * weight_s)


SCHEDULE = DualPipeV()
