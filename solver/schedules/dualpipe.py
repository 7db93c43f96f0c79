"""DualPipe (DeepSeek-V3, arXiv 2412.19437, 3.2.1; deepseek-ai/DualPipe): half of the micro-batches enters at each end.

Rank i holds pieces i and p-1-i, so every layer is on two ranks: two copies of the parameters, whose gradients are added up at the
end. Chunk 0 carries the first half of the micro-batches from rank 0 on, chunk 1 the second half from rank p-1 on. Bubble of equal
stages where F = I = W: (p/2-1)(F&B + B - 3W) with the overlapped pair F&B = F + B; p+1 pieces in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.compiling import compiled
from solver.schedules import InOrder, Operation
from solver.schedules.dual_order import dual_order
from solver.schedules.programs import operations

CODE = 6
EQUAL = 1e-12


@compiled
def dualpipe_in_flight(stages: int) -> float:
    """In units of both pieces of a rank."""
    return 0.5 * (stages + 1)


@compiled
def dualpipe_order(stage: int, stages: int, micro_batches: int, program: np.ndarray) -> int:
    """Write the operations of a rank into int32[3 m, 4]; how many there are."""
    near = min(stage, stages - 1 - stage)
    flip = 1 if stage >= stages // 2 else 0
    return dual_order(stages // 2, near, micro_batches // 2 - stages, flip, micro_batches // 2, program)


@dataclass(frozen=True)
class DualPipe(InOrder):
    kind: str = "dualpipe"
    code: int = CODE
    chunks: int | None = 2
    copies: int = 2

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        if vpp != 2:
            return f"dualpipe runs two chunks per stage, one per direction, not {vpp}"
        if stages % 2:
            return f"dualpipe needs an even number of stages, not {stages}"
        if micro_batches % 2 or micro_batches < 2 * stages:
            return f"dualpipe needs an even number of micro-batches, at least {2 * stages}, not {micro_batches}"
        return None

    def pieces(self, stages: int, vpp: int) -> int:
        return stages

    def piece(self, chunk: int, stage: int, stages: int) -> int:
        return stage if chunk == 0 else stages - 1 - stage

    def carries(self, chunk: int, micro_batch: int, micro_batches: int) -> bool:
        return (micro_batch < micro_batches // 2) == (chunk == 0)

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        program = np.zeros((3 * micro_batches, 4), dtype=np.int32)
        return operations(program[: dualpipe_order(stage, stages, micro_batches, program)])

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(dualpipe_in_flight(stages))

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        """Half of the micro-batches passes each of the two chunks, whose seconds are those of all chunks over two."""
        if max(abs(forward_s - input_s), abs(input_s - weight_s)) > EQUAL * forward_s:
            return None
        chunk_s = 0.5 * (forward_s + input_s + weight_s)
        return micro_batches * chunk_s + (stages / 2 - 1) * (chunk_s + 0.5 * (input_s - 2.0 * weight_s))


SCHEDULE = DualPipe()
