"""1F1B (PipeDream-flush): p-1-i warm-up forwards on stage i, then one forward and one backward in turn, then the rest.

Bubble of equal stages (p-1)(F+B); stage i holds min(m, p-i) micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.schedules import Operation


@dataclass(frozen=True)
class OneForwardOneBackward:
    kind: str = "1f1b"

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


SCHEDULE = OneForwardOneBackward()
