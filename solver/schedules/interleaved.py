"""Megatron's interleaved 1F1B: every rank holds `vpp` chunks, micro-batches pass them in groups of `stages`.

Order and warm-up as in megatron-core `pipeline_parallel/schedules.py` with microbatch_group_size_per_vp_stage = stages: rank i
warms up with 2(p-1-i) + (v-1)p chunk forwards (at most all). Bubble of equal chunks (p-1)(F+B)/v.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.schedules import Operation


@dataclass(frozen=True)
class Interleaved:
    kind: str = "interleaved"

    def refusal(self, stages: int, vpp: int, micro_batches: int) -> str | None:
        if vpp < 2:
            return "interleaved needs at least 2 chunks per stage"
        if micro_batches % stages != 0:
            return f"interleaved needs micro-batches in groups of {stages} stages, not {micro_batches}"
        return None

    def order(self, stage: int, stages: int, vpp: int, micro_batches: int) -> list[Operation]:
        total = micro_batches * vpp
        forwards, backwards = [], []
        for group in range(0, micro_batches, stages):
            members = range(group, min(group + stages, micro_batches))
            forwards += [Operation("F", j, chunk) for chunk in range(vpp) for j in members]
            backwards += [Operation("B", j, chunk) for chunk in reversed(range(vpp)) for j in members]
        warmup = self.warmup(stage, stages, vpp, micro_batches)
        pairs = zip(forwards[warmup:], backwards[: total - warmup], strict=True)
        return forwards[:warmup] + [operation for pair in pairs for operation in pair] + backwards[total - warmup :]

    def in_flight(self, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
        return min(self.warmup(stage, stages, vpp, micro_batches) + 1, micro_batches * vpp) / vpp

    def warmup(self, stage: int, stages: int, vpp: int, micro_batches: int) -> int:
        """Chunk forwards before the first pair."""
        return min(2 * (stages - 1 - stage) + (vpp - 1) * stages, micro_batches * vpp)


SCHEDULE = Interleaved()
