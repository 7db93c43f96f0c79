"""Exact recurrences of pipeline schedules, compiled: when does every stage end its last backward?

All times are seconds. Edges between stages are free (an exposed transfer is part of its operation). A rank runs its operations
in the order of its schedule; an operation starts once its rank is free and its input exists. Memory is O(stages).

The `_equal` forms price micro-batches of equal cost. One steady step of a schedule is a max-plus linear map; once it has raised
every component of the state by the same constant it does so for ever (the map commutes with adding a constant), so the remaining
steady steps are skipped exactly. As the map is non-expansive, increments that differ by a fraction `PERIOD_TOLERANCE` of the
period bound the relative error of the skipped steps by that fraction. A transient that never settles is run to its end.
"""

import numpy as np
from numpy.typing import NDArray

from solver.compiling import compiled, inlined

Floats = NDArray[np.float64]

PERIOD_TOLERANCE = 3e-13
ROUNDING = 4.5e-16


@compiled
def one_f_one_b_warmup(stage: int, stages: int, micro_batches: int) -> int:
    """Forwards that stage `stage` runs before its first forward-backward pair under 1F1B."""
    return min(micro_batches, stages - 1 - stage)


@compiled
def interleaved_warmup(stage: int, stages: int, vpp: int, micro_batches: int) -> int:
    """Chunk forwards that rank `stage` runs before its first pair (megatron-core, groups of `stages`), absent ones counted."""
    groups = (micro_batches + stages - 1) // stages
    return min((stages - 1 - stage) * 2 + (vpp - 1) * stages, groups * stages * vpp)


@inlined
def one_f_one_b_in_flight(stage: int, stages: int, micro_batches: int) -> float:
    """Most micro-batches whose activations stage `stage` holds at once."""
    return float(min(micro_batches, stages - stage))


@inlined
def interleaved_in_flight(stage: int, stages: int, vpp: int, micro_batches: int) -> float:
    """Most chunks in flight on a rank over its `vpp` chunks: the warm-up and one forward, less those absent of the last group."""
    first = (stages - 1 - stage) * 2 + (vpp - 1) * stages + 1
    whole = min(first // (stages * vpp), micro_batches // stages)
    held = whole * stages * vpp
    rest = min(first - held, stages * vpp)
    present = stages if whole < micro_batches // stages else micro_batches % stages
    return (held + (rest // stages) * present + min(rest % stages, present)) / vpp


@compiled
def one_f_one_b_ends(forward_s: Floats, backward_s: Floats, ends: Floats) -> None:
    """Write the end of the last backward of every stage under 1F1B.

    `forward_s`, `backward_s`: [stages, micro_batches]; `ends`: [stages]. Round r runs, on stage i, forward r + p-1-i and
    backward r. Going down the stages, a forward reads what stage i-1 did in round r-1, a backward what stage i+1 has just done.
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


@inlined
def forward_run(cost_s: Floats, base: int, stride: int, first: int, stop: int, clocks: Floats, made: Floats) -> None:
    """One chunk forward on ranks first..stop-1: rank i reads made[i] (of rank i-1), writes made[i+1]; cost at base + stride i.

    Unsigned indices keep the loop free of wrap-around tests: it is compiled to vector instructions.
    """
    one, last = np.uint64(1), np.uint64(stop - 1)
    offset, step = np.uint64(base), np.uint64(stride)
    for done in range(np.uint64(stop - first)):
        i = last - done
        start = clocks[i] if clocks[i] > made[i] else made[i]
        start += cost_s[offset + step * i]
        clocks[i] = start
        made[i + one] = start


@inlined
def backward_run(cost_s: Floats, base: int, stride: int, first: int, stop: int, clocks: Floats, made: Floats) -> None:
    """One chunk backward on ranks first..stop-1: rank i reads made[i+1] (of rank i+1) and writes made[i]."""
    one = np.uint64(1)
    offset, step = np.uint64(base), np.uint64(stride)
    for i in range(np.uint64(first), np.uint64(stop)):
        start = clocks[i] if clocks[i] > made[i + one] else made[i + one]
        start += cost_s[offset + step * i]
        clocks[i] = start
        made[i] = start


@compiled
def one_f_one_b_ends_equal(forward_s: Floats, backward_s: Floats, micro_batches: int, ends: Floats) -> None:
    """As `one_f_one_b_ends` for `micro_batches` equal ones; `forward_s`, `backward_s`, `ends`: [stages]."""
    stages = forward_s.shape[0]
    forward_end = np.zeros(stages + 1)  # of the stage before
    for i in range(stages):
        ends[i] = 0.0
    zero, one = int(np.int64(0)), int(np.int64(1))  # as in `equal_tick`
    for r in range(1 - stages, 0):
        forward_run(forward_s, zero, one, max(0, r + stages - micro_batches), r + stages, ends, forward_end)
    last_steady = micro_batches - stages
    r = 0
    watch = True
    while r < micro_batches:
        below = 0.0
        least = np.inf
        most = 0.0
        for i in range(stages - 1, -1, -1):
            now = ends[i]
            if r + stages - 1 - i < micro_batches:
                if forward_end[i] > now:
                    now = forward_end[i]
                now += forward_s[i]
                step = now - forward_end[i + 1]
                least = min(least, step)
                most = max(most, step)
                forward_end[i + 1] = now
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
                forward_end[i + 1] += skipped * period
            r += skipped
            watch = False
        r += 1


@compiled
def interleaved_tick(
    forward_s: Floats,
    backward_s: Floats,
    vpp: int,
    micro_batches: int,
    tick: int,
    clocks: Floats,
    forwards: Floats,
    backwards: Floats,
) -> None:
    """Run one tick on every rank: at tick t rank i runs forward number t + (p-1-i) + (v-1)p, then backward number t - (p-1-i).

    With this skew every input was made by a ring neighbour at tick t-1: forwards come from rank i-1, backwards from rank i+1
    (mod p). Ranks of one chunk are neighbours, so a tick is at most two runs each way; ranks whose micro-batch is absent from the
    last group rest. `forward_s`, `backward_s` are flat [stages * vpp, micro_batches]; `forwards`, `backwards`: [stages + 1] last
    outputs on the ring.
    """
    stages = clocks.shape[0]
    columns = micro_batches
    groups = (micro_batches + stages - 1) // stages
    row = (tick + (vpp - 1) * stages) // stages
    cut = tick + (vpp - 1) * stages - row * stages
    forwards[0] = forwards[stages] if (row + (1 if cut > 0 else 0)) % vpp > 0 else 0.0
    for k in range(2):
        first, stop = (cut, stages) if k == 0 else (0, cut)
        group = (row + k) // vpp
        chunk = row + k - group * vpp
        newest = (group + 1 - k) * stages + cut - 1  # micro-batch of rank 0; each rank after it has the one before
        first = max(first, newest + 1 - micro_batches)
        if first < stop and 0 <= group < groups:
            forward_run(forward_s, chunk * stages * columns + newest, columns - 1, first, stop, clocks, forwards)
    row = tick // stages
    cut = (row + 1) * stages - 1 - tick
    backwards[stages] = backwards[0] if row % vpp > 0 else 0.0
    for k in range(2):
        first, stop = (0, cut) if k == 0 else (cut, stages)
        group = (row - 1 + k) // vpp
        chunk = vpp - 1 - (row - 1 + k - group * vpp)
        oldest = (group + 1 - k) * stages - cut  # micro-batch of rank 0; each rank after it has the one behind
        stop = min(stop, micro_batches - oldest)
        if first < stop and 0 <= group < groups:
            backward_run(backward_s, chunk * stages * columns + oldest, columns + 1, first, stop, clocks, backwards)


@inlined
def equal_tick(
    forward_s: Floats,
    backward_s: Floats,
    vpp: int,
    micro_batches: int,
    groups: int,
    group: int,
    row: int,
    phase: int,
    clocks: Floats,
    forwards: Floats,
    backwards: Floats,
) -> None:
    """As `interleaved_tick` for equal micro-batches and tick = (group vpp + row) stages + phase.

    The last ranks' backwards are of this row, the first ranks' forwards of this row of the next group; others are a row behind.
    """
    stages = clocks.shape[0]
    zero, one = int(np.int64(0)), int(np.int64(1))  # not literals: a run is compiled once for any number
    behind = row - 1 if row > 0 else vpp - 1
    behind_group = group if row > 0 else group - 1
    forwards[0] = forwards[stages] if (row if phase > 0 else behind) > 0 else 0.0
    if 0 <= behind_group + 1 < groups:
        first = max(phase, (behind_group + 2) * stages + phase - micro_batches)
        if first < stages:
            forward_run(forward_s, behind * stages, one, first, stages, clocks, forwards)
    if 0 <= group + 1 < groups:
        first = max(zero, (group + 1) * stages + phase - micro_batches)
        if first < phase:
            forward_run(forward_s, row * stages, one, first, phase, clocks, forwards)
    cut = stages - 1 - phase
    backwards[stages] = backwards[0] if row > 0 else 0.0
    if 0 <= behind_group < groups:
        stop = min(cut, micro_batches - (behind_group + 1) * stages + cut)
        if stop > 0:
            backward_run(backward_s, (vpp - 1 - behind) * stages, one, zero, stop, clocks, backwards)
    if 0 <= group < groups:
        stop = min(stages, micro_batches - group * stages + cut)
        if cut < stop:
            backward_run(backward_s, (vpp - 1 - row) * stages, one, cut, stop, clocks, backwards)


@compiled
def least_and_most_rise(clocks: Floats, forwards: Floats, backwards: Floats, before: Floats) -> tuple[float, float]:
    """Least and most increase of the state since it was written to `before` [3, stages], where it is written again."""
    least = np.inf
    most = 0.0
    for i in range(clocks.shape[0]):
        for step in (clocks[i] - before[0, i], forwards[i + 1] - before[1, i], backwards[i] - before[2, i]):
            least = min(least, step)
            most = max(most, step)
        before[0, i] = clocks[i]
        before[1, i] = forwards[i + 1]
        before[2, i] = backwards[i]
    return least, most


@compiled
def interleaved_ends_equal(
    forward_s: Floats, backward_s: Floats, micro_batches: int, stages: int, vpp: int, ends: Floats
) -> None:
    """As `interleaved_ends` for equal micro-batches; `forward_s`, `backward_s`: [stages * vpp]. Period: `stages` of them."""
    span = stages * vpp
    groups = (micro_batches + stages - 1) // stages
    last_steady = (micro_batches // stages - 1) * span  # forwards are a group ahead: up to here their groups are whole
    forwards = np.zeros(stages + 1)
    backwards = np.zeros(stages + 1)
    before = np.full((3, stages), -np.inf)
    ends[:] = 0.0
    tick = 1 - span
    group = tick // span
    row = (tick - group * span) // stages
    phase = tick - (group * vpp + row) * stages
    while tick < groups * span + stages - 1:
        equal_tick(forward_s, backward_s, vpp, micro_batches, groups, group, row, phase, ends, forwards, backwards)
        if row == 0 and phase == stages - 1 and group >= 0 and tick + span <= last_steady:
            least, most = least_and_most_rise(ends, forwards, backwards, before)
            if most < np.inf and most - least <= PERIOD_TOLERANCE * most + ROUNDING * ends[0]:
                skipped = (last_steady - tick) // span
                tick += skipped * span
                group += skipped
                rise = skipped * 0.5 * (most + least)
                ends += rise
                forwards += rise
                backwards += rise
        tick += 1
        phase += 1
        if phase == stages:
            phase = 0
            row += 1
            if row == vpp:
                row = 0
                group += 1


@compiled
def interleaved_ends(forward_s: Floats, backward_s: Floats, stages: int, vpp: int, ends: Floats) -> None:
    """Write the end of the last backward of every rank under Megatron's interleaved 1F1B.

    `forward_s`, `backward_s`: [stages * vpp, micro_batches], virtual stage k on rank k % stages; `ends`: [stages]. Micro-batches
    go in groups of `stages` through the chunks; the last group may be smaller, its order is that of a whole one without the
    absent micro-batches.
    """
    columns = forward_s.shape[1]
    if columns == 1:
        interleaved_ends_equal(forward_s[:, 0].copy(), backward_s[:, 0].copy(), int(np.int64(1)), stages, vpp, ends)
        return
    flat_forward = np.ascontiguousarray(forward_s).reshape(stages * vpp * columns)
    flat_backward = np.ascontiguousarray(backward_s).reshape(stages * vpp * columns)
    forwards = np.zeros(stages + 1)
    backwards = np.zeros(stages + 1)
    ends[:] = 0.0
    groups = (columns + stages - 1) // stages
    for tick in range(1 - vpp * stages, groups * stages * vpp + stages - 1):
        interleaved_tick(flat_forward, flat_backward, vpp, columns, tick, ends, forwards, backwards)
