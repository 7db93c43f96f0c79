"""ZB-H1 (Qi et al. 2024, arXiv 2401.10241, 2.2; PyTorch calls it zero bubble 1F1B): 1F1B's warm-up, stage i owes i W's.

The W's fill the end of the step. Every stage holds min(m, p) micro-batches until their W. Bubble of equal stages with
W <= F, I and m >= p: (p-1)(F + I - W), with B = I + W the (p-1)(F + B - 2W) of the paper; for any F, I, W, m it is
(p-1)(F + I) - (min(m, p) - 1) min(F, I, W).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.compiling import compiled
from solver.schedules import InOrder, Operation
from solver.schedules.kernels import Floats
from solver.schedules.split_backward import split_ends, split_order

CODE = 3


@compiled
def h1_in_flight(stages: int, micro_batches: int) -> float:
    """As many as 1F1B's first stage, on all stages."""
    return float(min(micro_batches, stages))


@compiled
def h1_ends(forward_s: Floats, backward_s: Floats, weight_s: Floats, micro_batches: int, ends: Floats) -> None:
    """Write the end of the last operation of every stage."""
    stages = forward_s.shape[0]
    split_ends(
        forward_s,
        backward_s,
        weight_s,
        micro_batches,
        stages - 1 - np.arange(stages),
        np.arange(stages),
        np.zeros(stages),
        ends,
    )


@dataclass(frozen=True)
class ZeroBubbleH1(InOrder):
    kind: str = "zero_bubble_h1"
    code: int = CODE
    chunks: int | None = 1

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        return None if vpp == 1 else f"zero_bubble_h1 runs one chunk per stage, not {vpp}"

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        return split_order(micro_batches, stages - 1 - stage, stage)

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(min(micro_batches, stages))

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        bubble = (stages - 1) * (forward_s + input_s) - (min(micro_batches, stages) - 1) * min(forward_s, input_s, weight_s)
        return micro_batches * (forward_s + input_s + weight_s) + bubble


SCHEDULE = ZeroBubbleH1()
