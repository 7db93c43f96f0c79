"""ZB-H2 (Qi et al. 2024, arXiv 2401.10241, 2.3): twice 1F1B's warm-up, stage i owes 2i W's.

Forwards fill the start, W's the end of the step; every stage holds min(m, 2p-1) micro-batches. All stages end one after the other
as they began: the step is a parallelogram, and counts as its longest row because the optimizer step is validated afterwards
instead of waiting for a reduction over all stages (their section 4). Bubble of equal stages for m >= 2p-1:
(p-1) max(0, F + I - 2 min(F, W)), with W <= F the (p-1)(F + B - 3W) of the paper, none where F = I = W.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.compiling import compiled
from solver.schedules import InOrder, Operation
from solver.schedules.kernels import Floats
from solver.schedules.split_backward import split_ends, split_order

CODE = 4


@compiled
def h2_in_flight(stages: int, micro_batches: int) -> float:
    """On all stages."""
    return float(min(micro_batches, 2 * stages - 1))


@compiled
def h2_spans(forward_s: Floats, backward_s: Floats, weight_s: Floats, micro_batches: int, spans: Floats) -> None:
    """Write the seconds from the first start to the last end of every stage."""
    stages = forward_s.shape[0]
    starts = np.zeros(stages)
    split_ends(
        forward_s,
        backward_s,
        weight_s,
        micro_batches,
        2 * (stages - 1 - np.arange(stages)),
        2 * np.arange(stages),
        starts,
        spans,
    )
    spans -= starts


@dataclass(frozen=True)
class ZeroBubbleH2(InOrder):
    kind: str = "zero_bubble_h2"
    code: int = CODE
    chunks: int | None = 1
    post_validated: bool = True

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        return None if vpp == 1 else f"zero_bubble_h2 runs one chunk per stage, not {vpp}"

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        return split_order(micro_batches, 2 * (stages - 1 - stage), 2 * stage)

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return float(min(micro_batches, 2 * stages - 1))

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        if micro_batches < 2 * stages - 1:
            return None
        bubble = (stages - 1) * max(0.0, forward_s + input_s - 2.0 * min(forward_s, weight_s))
        return micro_batches * (forward_s + input_s + weight_s) + bubble


SCHEDULE = ZeroBubbleH2()
