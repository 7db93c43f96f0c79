"""The compiled functions of every schedule by its code: what the cost model and the search call."""

from __future__ import annotations

import numpy as np

from solver.compiling import compiled, inlined
from solver.schedules import dualpipe, dualpipe_v, gpipe, interleaved, one_f_one_b, zero_bubble_h1, zero_bubble_h2, zero_bubble_v
from solver.schedules.dualpipe import dualpipe_in_flight, dualpipe_order
from solver.schedules.dualpipe_v import dualpipe_v_in_flight, dualpipe_v_order
from solver.schedules.gpipe import gpipe_ends, gpipe_in_flight
from solver.schedules.kernels import (
    Floats,
    interleaved_ends,
    interleaved_ends_equal,
    interleaved_in_flight,
    one_f_one_b_ends,
    one_f_one_b_ends_equal,
    one_f_one_b_in_flight,
)
from solver.schedules.programs import run_programs
from solver.schedules.zero_bubble_h1 import h1_ends, h1_in_flight
from solver.schedules.zero_bubble_h2 import h2_in_flight, h2_spans
from solver.schedules.zero_bubble_v import zbv_in_flight, zbv_order

ONE_F_ONE_B = one_f_one_b.CODE
INTERLEAVED = interleaved.CODE
GPIPE = gpipe.CODE
H1 = zero_bubble_h1.CODE
H2 = zero_bubble_h2.CODE
ZBV = zero_bubble_v.CODE
DUALPIPE = dualpipe.CODE
DUALPIPE_V = dualpipe_v.CODE


@inlined
def piece_of(schedule: int, chunk: int, stage: int, stages: int) -> int:
    """The part of the layers that a chunk of a rank holds."""
    if chunk == 1 and schedule in (ZBV, DUALPIPE_V):
        return 2 * stages - 1 - stage
    if chunk == 1 and schedule == DUALPIPE:
        return stages - 1 - stage
    return chunk * stages + stage


@inlined
def pieces_of(schedule: int, stages: int, vpp: int) -> int:
    """Parts into which the layers are cut."""
    return stages if schedule == DUALPIPE else stages * vpp


@inlined
def holds_last(schedule: int, stage: int, stages: int) -> bool:
    """Whether a rank holds the last piece, with the head."""
    if schedule in (ZBV, DUALPIPE_V):
        return stage == 0
    return stage == stages - 1 or (schedule == DUALPIPE and stage == 0)


@inlined
def holds_first(schedule: int, stage: int, stages: int) -> bool:
    """Whether a rank holds the first piece, with the embedding."""
    return stage == 0 or (schedule == DUALPIPE and stage == stages - 1)


@inlined
def in_flight(schedule: int, stage: int, stages: int, vpp: int, micro_batches: int) -> float:
    """Most micro-batches whose activations a rank holds at once, in units of one micro-batch of all its chunks."""
    if schedule == ONE_F_ONE_B:
        return one_f_one_b_in_flight(stage, stages, micro_batches)
    if schedule == INTERLEAVED:
        return interleaved_in_flight(stage, stages, vpp, micro_batches)
    return other_in_flight(schedule, stage, stages, micro_batches)


@compiled
def other_in_flight(schedule: int, stage: int, stages: int, micro_batches: int) -> float:
    """As `in_flight` for the schedules that are asked less often."""
    if schedule == GPIPE:
        return gpipe_in_flight(micro_batches)
    if schedule == H1:
        return h1_in_flight(stages, micro_batches)
    if schedule == H2:
        return h2_in_flight(stages, micro_batches)
    if schedule == ZBV:
        return zbv_in_flight(stage, stages, micro_batches)
    return dualpipe_in_flight(stages) if schedule == DUALPIPE else dualpipe_v_in_flight(stages)


@compiled
def schedule_ends(
    schedule: int,
    forward_s: Floats,
    backward_s: Floats,
    weight_s: Floats,
    stages: int,
    vpp: int,
    micro_batches: int,
    ends: Floats,
) -> None:
    """Write the seconds that every rank needs to the end of its last operation (post-validated: from its first start on).

    Seconds: [slots, columns], one column per micro-batch or one for all; `ends`: [stages].
    """
    equal = forward_s.shape[1] == 1
    if schedule == ONE_F_ONE_B:
        if equal:
            one_f_one_b_ends_equal(forward_s[:, 0].copy(), backward_s[:, 0].copy(), micro_batches, ends)
        else:
            one_f_one_b_ends(forward_s, backward_s, ends)
    elif schedule == INTERLEAVED:
        if equal:
            interleaved_ends_equal(forward_s[:, 0].copy(), backward_s[:, 0].copy(), micro_batches, stages, vpp, ends)
        else:
            interleaved_ends(forward_s, backward_s, stages, vpp, ends)
    elif schedule == GPIPE:
        gpipe_ends(forward_s, backward_s, micro_batches, ends)
    elif schedule == H1:
        h1_ends(forward_s, backward_s, weight_s, micro_batches, ends)
    elif schedule == H2:
        h2_spans(forward_s, backward_s, weight_s, micro_batches, ends)
    else:
        program_ends(schedule, forward_s, backward_s, weight_s, stages, micro_batches, ends)


@compiled
def program_ends(
    schedule: int, forward_s: Floats, backward_s: Floats, weight_s: Floats, stages: int, micro_batches: int, ends: Floats
) -> None:
    """As `schedule_ends` by writing the programs of the ranks out and running them."""
    programs = np.zeros((stages, 6 * micro_batches, 4), dtype=np.int32)
    counts = np.zeros(stages, dtype=np.int64)
    for stage in range(stages):
        if schedule == ZBV:
            counts[stage] = zbv_order(stage, stages, micro_batches, programs[stage])
        elif schedule == DUALPIPE:
            counts[stage] = dualpipe_order(stage, stages, micro_batches, programs[stage])
        else:
            counts[stage] = dualpipe_v_order(stage, stages, micro_batches, programs[stage])
    before, after = np.full(2 * stages, -1), np.full(2 * stages, -1)
    for stage in range(stages):
        if schedule == DUALPIPE:
            link(stage, stage + 1, stage < stages - 1, before, after)
            link(stages + stage, stages + stage - 1, stage > 0, before, after)
        else:
            link(stage, stage + 1 if stage < stages - 1 else 2 * stages - 1, True, before, after)
            link(stages + stage, stages + stage - 1, stage > 0, before, after)
    starts = np.zeros(stages)
    if not run_programs(programs, counts, before, after, forward_s, backward_s, weight_s, micro_batches, starts, ends):
        raise ValueError("the programs of the ranks wait for each other")
    if schedule == ZBV:
        ends -= starts


@inlined
def link(slot: int, following: int, exists: bool, before: np.ndarray, after: np.ndarray) -> None:
    """A micro-batch goes from one slot to the next one."""
    if exists:
        after[slot] = following
        before[following] = slot
