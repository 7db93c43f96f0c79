"""1F1B (PipeDream-flush): p-1-i warm-up forwards on stage i, then one forward and one backward in turn, then the rest.

Bubble of equal stages (p-1)(F+B); stage i holds min(m, p-i) micro-batches. Its recurrence: `kernels.one_f_one_b_ends`.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.schedules import InOrder, Operation

CODE = 0


@dataclass(frozen=True)
class OneForwardOneBackward(InOrder):
    kind: str = "1f1b"
    code: int = CODE
    chunks: int | None = 1

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        return None if vpp == 1 else f"1f1b runs one chunk per stage, not {vpp}"

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        warmup = min(micro_batches, stages - 1 - stage)
        operations = [Operation("F", j, 0) for j in range(warmup)]
        for j in range(micro_batches - warmup):
            operations += [Operation("F", j + warmup, 0), Operation("B", j, 0)]
        return operations + [Operation("B", j, 0) for j in range(micro_batches - warmup, micro_batches)]

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(min(micro_batches, stages - stage))

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        return (micro_batches + stages - 1) * (forward_s + input_s + weight_s)


SCHEDULE = OneForwardOneBackward()
