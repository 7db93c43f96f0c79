"""Megatron's interleaved 1F1B: every rank holds `vpp` chunks, micro-batches pass them in groups of `stages`.

Order and warm-up as in megatron-core `pipeline_parallel/schedules.py` with microbatch_group_size_per_vp_stage = stages: rank i
warms up with 2(p-1-i) + (v-1)p chunk forwards (at most all). Bubble of equal chunks (p-1)(F+B)/v when m divides into groups, as
Megatron demands. Otherwise the last group is short: the order of a whole group without the absent micro-batches, which cannot
deadlock because micro-batches depend on nothing of each other. Recurrence: `kernels.interleaved_ends`.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.schedules import InOrder, Operation

CODE = 1


@dataclass(frozen=True)
class Interleaved(InOrder):
    kind: str = "interleaved"
    code: int = CODE
    chunks: int | None = None

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        return "interleaved needs at least 2 chunks per stage" if vpp < 2 else None

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        forwards, backwards = [], []
        for group in range(0, micro_batches, stages):
            members = range(group, group + stages)
            forwards += [Operation("F", j, chunk) for chunk in range(vpp) for j in members]
            backwards += [Operation("B", j, chunk) for chunk in reversed(range(vpp)) for j in members]
        total = len(forwards)
        warmup = min(2 * (stages - 1 - stage) + (vpp - 1) * stages, total)
        pairs = zip(forwards[warmup:], backwards[: total - warmup], strict=True)
        whole = forwards[:warmup] + [operation for pair in pairs for operation in pair] + backwards[total - warmup :]
        return [operation for operation in whole if operation.micro_batch < micro_batches]

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        """Counted: forwards of the warm-up and of the first pair that are present."""
        ahead = 2 * (stages - 1 - stage) + (vpp - 1) * stages + 1
        held = 0
        for group in range(0, micro_batches, stages):
            present = min(stages, micro_batches - group)
            here = min(ahead, stages * vpp)
            held += here // stages * present + min(here % stages, present)
            ahead -= here
        return held / vpp

    def closed_form_s(
        self, stages: int, vpp: int, micro_batches: int, forward_s: float, input_s: float, weight_s: float
    ) -> float | None:
        if micro_batches % stages:
            return None
        return (micro_batches + (stages - 1) / vpp) * (forward_s + input_s + weight_s)


SCHEDULE = Interleaved()
