"""Exact recurrences of pipeline schedules, compiled: when does every stage end its last backward?

All times are seconds. Edges between stages are free (an exposed transfer is part of its operation). A rank runs its operations in the
order of its schedule; an operation starts once its rank is free and its input exists. Everything is scalar and needs O(stages) memory.

The `_equal` forms price micro-batches of equal cost. One steady step of a schedule is a max-plus linear map; once it has raised every
component of the state by the same constant it does so for ever (the map commutes with adding a constant), so the remaining steady steps
are skipped exactly. As the map is non-expansive, increments that differ by a fraction `PERIOD_TOLERANCE` of the period bound the relative
error of the skipped steps by that fraction. A transient that never settles is run to its end.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kernel = TypeVar("Kernel", bound=Callable[..., object])

PERIOD_TOLERANCE = 3e-13
ROUNDING = 4.5e-16


def compiled(function: Kernel) -> Kernel:
    """`numba.njit(cache=True)` with the type of the Python function kept."""
    return cast(Kernel, njit(cache=True)(function))


@compiled
def one_f_one_b_warmup(stage: int, stages: int, micro_batches: int) -> int:
    """Forwards that stage `stage` runs before its first forward-backward pair under 1F1B."""
    return min(micro_batches, stages - 1 - stage)


@compiled
def interleaved_warmup(stage: int, stages: int, vpp: int, micro_batches: int) -> int:
    """Chunk forwards that rank `stage` runs before its first pair (megatron-core `get_pp_rank_microbatches`, group size = stages)."""
    return min((stages - 1 - stage) * 2 + (vpp - 1) * stages, micro_batches * vpp)


@compiled
def in_flight(stage: int, stages: int, vpp: int, micro_batches: int) -> float:
    """Most micro-batches whose activations one rank holds at once, in units of one micro-batch of its whole stage.

    1F1B (vpp 1): min(m, p - i). Interleaved: min(warm-up + 1, m vpp) chunks, each 1/vpp of the stage.
    """
    if vpp == 1:
        return float(min(micro_batches, stages - stage))
    return min((stages - 1 - stage) * 2 + (vpp - 1) * stages + 1, micro_batches * vpp) / vpp


@compiled
def one_f_one_b_ends(forward_s: Floats, backward_s: Floats, ends: Floats) -> None:
    """Write the end of the last backward of every stage under 1F1B.

    `forward_s`, `backward_s`: [stages, micro_batches]; `ends`: [stages]. Round r runs, on stage i, forward r + p-1-i and backward r. Going
    down the stages, the forward reads what stage i-1 did in round r-1 and the backward what stage i+1 has just done.
    """
    stages, micro_batches = forward_s.shape
    forward_end = np.zeros(stages)
    for i in range(stages):
        ends[i] = 0.0
    for r in range(1 - stages, micro_batches):
        below = 0.0
        for i in range(stages - 1, -1, -1):
            now = ends[i]
            q = r + stages - 1 - i
            if 0 <= q < micro_batches:
                if i > 0 and forward_end[i - 1] > now:
                    now = forward_end[i - 1]
                now += forward_s[i, q]
                forward_end[i] = now
            if r >= 0:
                if below > now:
                    now = below
                now += backward_s[i, r]
                below = now
            ends[i] = now


@compiled
def one_f_one_b_ends_equal(forward_s: Floats, backward_s: Floats, micro_batches: int, ends: Floats) -> None:
    """As `one_f_one_b_ends` for `micro_batches` equal ones; `forward_s`, `backward_s`, `ends`: [stages]."""
    stages = forward_s.shape[0]
    forward_end = np.zeros(stages)
    for i in range(stages):
        ends[i] = 0.0
    last_steady = micro_batches - stages
    r = 1 - stages
    watch = True
    while r < micro_batches:
        below = 0.0
        least = np.inf
        most = 0.0
        for i in range(stages - 1, -1, -1):
            now = ends[i]
            q = r + stages - 1 - i
            if 0 <= q < micro_batches:
                if i > 0 and forward_end[i - 1] > now:
                    now = forward_end[i - 1]
                now += forward_s[i]
                step = now - forward_end[i]
                least = min(least, step)
                most = max(most, step)
                forward_end[i] = now
            if r >= 0:
                if below > now:
                    now = below
                now += backward_s[i]
                below = now
                step = now - ends[i]
                least = min(least, step)
                most = max(most, step)
            ends[i] = now
        if watch and 0 < r < last_steady and most - least <= PERIOD_TOLERANCE * most + ROUNDING * ends[0]:
            skipped = last_steady - r
            period = 0.5 * (most + least)
            for i in range(stages):
                ends[i] += skipped * period
                forward_end[i] += skipped * period
            r += skipped
            watch = False
        r += 1


@compiled
def interleaved_ends(forward_s: Floats, backward_s: Floats, stages: int, vpp: int, ends: Floats) -> None:
    """Write the end of the last backward of every rank under Megatron's interleaved 1F1B.

    `forward_s`, `backward_s`: [stages * vpp, micro_batches], virtual stage k on rank k % stages; `ends`: [stages]. Micro-batches go in
    groups of `stages` through the chunks and must divide into such groups. At tick t rank i runs the pair of its backward t - (p-1-i) and
    its forward of number t + (p-1-i) + (v-1)p. Then every input was made by a ring neighbour at tick t-1: forwards come from rank i-1,
    backwards from rank i+1 (mod p).
    """
    micro_batches = forward_s.shape[1]
    if micro_batches % stages != 0:
        raise ValueError("interleaved schedule: the number of micro-batches must be a multiple of the number of stages")
    total = micro_batches * vpp
    span = stages * vpp
    lead = (vpp - 1) * stages
    forward_end = np.zeros((2, stages))
    backward_end = np.zeros((2, stages))
    for i in range(stages):
        ends[i] = 0.0
    for tick in range(1 - stages - lead, total + stages - 1):
        new = tick & 1
        old = 1 - new
        for i in range(stages):
            skew = stages - 1 - i
            now = ends[i]
            q = tick + skew + lead
            if 0 <= q < total:
                chunk = (q % span) // stages
                source = forward_end[old, i - 1 if i > 0 else stages - 1]
                if (i > 0 or chunk > 0) and source > now:
                    now = source
                now += forward_s[chunk * stages + i, (q // span) * stages + q % stages]
                forward_end[new, i] = now
            q = tick - skew
            if 0 <= q < total:
                chunk = vpp - 1 - (q % span) // stages
                source = backward_end[old, i + 1 if skew > 0 else 0]
                if (skew > 0 or chunk < vpp - 1) and source > now:
                    now = source
                now += backward_s[chunk * stages + i, (q // span) * stages + q % stages]
                backward_end[new, i] = now
            ends[i] = now


@compiled
def interleaved_ends_equal(
    forward_s: Floats, backward_s: Floats, micro_batches: int, stages: int, vpp: int, ends: Floats
) -> None:
    """As `interleaved_ends` for equal micro-batches; `forward_s`, `backward_s`: [stages * vpp]. The period is a group of `stages`."""
    if micro_batches % stages != 0:
        raise ValueError("interleaved schedule: the number of micro-batches must be a multiple of the number of stages")
    total = micro_batches * vpp
    span = stages * vpp
    lead = (vpp - 1) * stages
    forward_end = np.zeros((2, stages))
    backward_end = np.zeros((2, stages))
    before = np.zeros((3, stages))
    for i in range(stages):
        ends[i] = 0.0
    last_steady = total - stages - lead
    check = stages - 1
    seen = False
    tick = 1 - stages - lead
    while tick < total + stages - 1:
        new = tick & 1
        old = 1 - new
        for i in range(stages):
            skew = stages - 1 - i
            now = ends[i]
            q = tick + skew + lead
            if 0 <= q < total:
                chunk = (q % span) // stages
                source = forward_end[old, i - 1 if i > 0 else stages - 1]
                if (i > 0 or chunk > 0) and source > now:
                    now = source
                now += forward_s[chunk * stages + i]
                forward_end[new, i] = now
            q = tick - skew
            if 0 <= q < total:
                chunk = vpp - 1 - (q % span) // stages
                source = backward_end[old, i + 1 if skew > 0 else 0]
                if (skew > 0 or chunk < vpp - 1) and source > now:
                    now = source
                now += backward_s[chunk * stages + i]
                backward_end[new, i] = now
            ends[i] = now
        if tick == check and tick + span <= last_steady:
            least = np.inf
            most = 0.0
            for i in range(stages):
                for step in (ends[i] - before[0, i], forward_end[new, i] - before[1, i], backward_end[new, i] - before[2, i]):
                    least = min(least, step)
                    most = max(most, step)
                before[0, i] = ends[i]
                before[1, i] = forward_end[new, i]
                before[2, i] = backward_end[new, i]
            check += span
            if seen and most - least <= PERIOD_TOLERANCE * most + ROUNDING * ends[0]:
                groups = (last_steady - tick) // span
                period = 0.5 * (most + least)
                for i in range(stages):
                    ends[i] += groups * period
                    forward_end[new, i] += groups * period
                    backward_end[new, i] += groups * period
                shift = groups * span
                if shift & 1 == 1:
                    for i in range(stages):
                        forward_end[old, i] = forward_end[new, i]
                        backward_end[old, i] = backward_end[new, i]
                tick += shift
                check = total + stages
            seen = True
        tick += 1
