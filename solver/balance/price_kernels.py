"""Compiled price of one layout: lower bound, exact step time, and a batch of layouts at once.

The step of one scenario is the latest end over chains, replicas and stages of (last backward + exposed sync + optimizer), plus
the step overhead; the price is the mean over scenarios (`solver.balance.ledger`). The bound is the window bound of
search_prototype 3.
"""

from __future__ import annotations

import numpy as np

from solver.balance.deal_kernels import deal, group_rows
from solver.compiling import compiled
from solver.cost.columns import LEAST_WORK, STEP_OVERHEAD
from solver.schedules.dispatch import DUALPIPE, GPIPE, H2, INTERLEAVED, ONE_F_ONE_B, ZBV, schedule_ends


@compiled
def first_stage_ends_last(schedule: int) -> bool:
    """Whether the backward of stage 0 follows the last operation of every other stage."""
    return schedule in (ONE_F_ONE_B, INTERLEAVED, GPIPE)


@compiled
def stage_windows(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    least: float,
    chain: int,
    windows: np.ndarray,
) -> None:
    """Write `windows` [stages, 3]: alpha, base, slope of every stage of a chain.

    A micro-batch takes base + slope x work. alpha = least time, with `least` work, that the step lasts before the first forward
    and after the last operation of the stage [P]: the forwards of the stages before it, and their backwards where stage 0 ends
    last. Weight gradients may come after them, so nothing follows where backwards are split; nothing comes before either where a
    rank's own span counts (post-validated) or where micro-batches enter at both ends. There a micro-batch passes only one of the
    two chunks, half of them each.
    """
    after = 1.0 if first_stage_ends_last(schedule) else 0.0
    enters = schedule not in (ZBV, H2, DUALPIPE)
    before = 0.0
    for stage in range(stages):
        base = 0.0
        slope = 0.0
        flattest = np.inf
        for chunk in range(vpp):
            slot = chunk * stages + stage
            base += forward[chain, slot, 0] + backward[chain, slot, 0]
            slope += forward[chain, slot, 1] + backward[chain, slot, 1]
            flattest = min(flattest, forward[chain, slot, 1] + backward[chain, slot, 1])
        windows[stage, 0] = before
        windows[stage, 1] = 0.5 * base if schedule == DUALPIPE else base
        windows[stage, 2] = flattest if schedule == DUALPIPE else slope
        if enters:
            before += forward[chain, stage, 0] + forward[chain, stage, 1] * least
            before += after * (backward[chain, stage, 0] + backward[chain, stage, 1] * least)


@compiled
def longest_window(windows: np.ndarray, stages: int, micro_batches: int, work: float, tail: float, follows: bool) -> int:
    """The stage whose window is longest when every micro-batch has `work`; `tail` comes after stage 0's, or all (`follows`)."""
    slowest = 0
    longest = -1.0
    for stage in range(stages):
        window = windows[stage, 0] + micro_batches * (windows[stage, 1] + windows[stage, 2] * work)
        if stage == 0 or follows:
            window += tail
        if window > longest:
            longest = window
            slowest = stage
    return slowest


@compiled
def slowest_stage(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    work: float,
    least: float,
    chain: int,
    micro_batches: int,
    out: np.ndarray,
) -> None:
    """Write [alpha, base, slope] of the stage whose window is longest when every micro-batch has `work`."""
    windows = np.empty((stages, 3))
    stage_windows(forward, backward, stages, vpp, schedule, least, chain, windows)
    stage = longest_window(windows, stages, micro_batches, work, 0.0, True)
    for column in range(3):
        out[column] = windows[stage, column]


@compiled
def step_bound(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    count: np.ndarray,
    micro_batches: np.ndarray,
    mbs: int,
    total_work: np.ndarray,
    sync: np.ndarray,
    update: np.ndarray,
    scalars: np.ndarray,
) -> float:
    """Seconds that no dealing of the scenarios' work can undercut.

    Per chain c the window, the sync and the optimizer of the first stage (where they come after that window) give
    alpha_c + m_c b_c + s_c Q_c + tail_c for a replica with work Q_c. Any weights that sum to 1 bound the maximum; weights
    count_c / s_c turn the sum of Q_c into the total work, whatever the dealing [P]. A chain whose longest window has no attention
    takes no part: the others may take the least work.
    """
    chains = count.shape[0]
    scenarios = total_work.shape[0]
    all_micro = 0
    for chain in range(chains):
        all_micro += count[chain] * micro_batches[chain]
    least = scalars[LEAST_WORK] * mbs
    follows = first_stage_ends_last(schedule)
    windows = np.empty((chains, stages, 3))
    for chain in range(chains):
        stage_windows(forward, backward, stages, vpp, schedule, least, chain, windows[chain])
    total = 0.0
    for scenario in range(scenarios):
        mean = total_work[scenario] / max(all_micro, 1)
        weight = 0.0
        value = 0.0
        flat = 0.0
        weighed = 0
        for chain in range(chains):
            tail = sync[chain, 0, 0] + update[chain, 0]
            stage = longest_window(windows[chain], stages, micro_batches[chain], mean, tail, follows)
            window = windows[chain, stage]
            fixed = window[0] + micro_batches[chain] * window[1] + (tail if follows or stage == 0 else 0.0)
            flat = max(flat, fixed + micro_batches[chain] * window[2] * least)
            if window[2] > 0.0:
                share = count[chain] / window[2]
                weight += share
                value += share * fixed
                weighed += count[chain] * micro_batches[chain]
        bound = flat
        if weight > 0.0:
            work = total_work[scenario] if weighed == all_micro else weighed * least
            bound = max(bound, (value + work) / weight)
        total += bound
    return float(total / scenarios + scalars[STEP_OVERHEAD])


@compiled
def step_seconds(
    forward: np.ndarray,
    backward: np.ndarray,
    weight: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    count: np.ndarray,
    micro_batches: np.ndarray,
    mbs: int,
    row_work: np.ndarray,
    equal_rows: bool,
    sync: np.ndarray,
    update: np.ndarray,
    scalars: np.ndarray,
    per_scenario: np.ndarray,
) -> float:
    """Exact price; writes the seconds of each scenario."""
    scenarios = row_work.shape[0]
    if equal_rows:
        latest = 0.0
        ends = np.empty(stages)
        for chain in range(count.shape[0]):
            equal_ends(forward, backward, weight, stages, vpp, schedule, chain, micro_batches[chain], row_work[0, 0] * mbs, ends)
            latest = max(latest, last_end(ends, sync, update, chain, stages))
        for scenario in range(scenarios):
            per_scenario[scenario] = latest + scalars[STEP_OVERHEAD]
        return float(per_scenario[0])
    total = 0.0
    for scenario in range(scenarios):
        dealt = dealt_work(forward, backward, stages, vpp, schedule, count, micro_batches, mbs, row_work[scenario])
        latest = 0.0
        replica = 0
        for chain in range(count.shape[0]):
            for _ in range(count[chain]):
                end = replica_end(
                    forward, backward, weight, stages, vpp, schedule, chain, dealt[replica, : micro_batches[chain]], sync, update
                )
                latest = max(latest, end)
                replica += 1
        per_scenario[scenario] = latest + scalars[STEP_OVERHEAD]
        total += per_scenario[scenario]
    return float(total / scenarios)


@compiled
def dealt_work(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    count: np.ndarray,
    micro_batches: np.ndarray,
    mbs: int,
    row_work: np.ndarray,
) -> np.ndarray:
    """float64[replicas, micro-batches]: one scenario's rows grouped and dealt longest first by the slowest stage's seconds."""
    chains = count.shape[0]
    replicas = 0
    all_micro = int(np.int64(0))
    widest = 0
    for chain in range(chains):
        replicas += count[chain]
        all_micro += count[chain] * micro_batches[chain]
        widest = max(widest, micro_batches[chain])
    work = np.empty(all_micro)
    group_rows(row_work, mbs, all_micro, work)
    mean = work.sum() / max(all_micro, 1)
    base = np.empty(chains)
    slope = np.empty(chains)
    window = np.empty(3)
    for chain in range(chains):
        slowest_stage(forward, backward, stages, vpp, schedule, mean, 0.0, chain, micro_batches[chain], window)
        base[chain] = window[1]
        slope[chain] = window[2]
    dealt = np.zeros((replicas, widest))
    deal(work, count, micro_batches, base, slope, dealt)
    return dealt


@compiled
def equal_ends(
    forward: np.ndarray,
    backward: np.ndarray,
    weight: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    chain: int,
    micro_batches: int,
    work: float,
    ends: np.ndarray,
) -> None:
    """Ends of the stages' last operations when every micro-batch has `work`."""
    slots = stages * vpp
    forward_s = np.empty((slots, 1))
    backward_s = np.empty((slots, 1))
    for slot in range(slots):
        forward_s[slot, 0] = forward[chain, slot, 0] + forward[chain, slot, 1] * work
        backward_s[slot, 0] = backward[chain, slot, 0] + backward[chain, slot, 1] * work
    weight_s = weight[chain].copy().reshape(slots, 1)
    schedule_ends(schedule, forward_s, backward_s, weight_s, stages, vpp, micro_batches, ends)


@compiled
def replica_ends(
    forward: np.ndarray,
    backward: np.ndarray,
    weight: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    chain: int,
    work: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Ends of the stages' last operations of one replica with the given work per micro-batch."""
    slots = stages * vpp
    micro_batches = work.shape[0]
    forward_s = np.empty((slots, micro_batches))
    backward_s = np.empty((slots, micro_batches))
    weight_s = np.empty((slots, micro_batches))
    for slot in range(slots):
        for index in range(micro_batches):
            forward_s[slot, index] = forward[chain, slot, 0] + forward[chain, slot, 1] * work[index]
            backward_s[slot, index] = backward[chain, slot, 0] + backward[chain, slot, 1] * work[index]
            weight_s[slot, index] = weight[chain, slot]
    schedule_ends(schedule, forward_s, backward_s, weight_s, stages, vpp, micro_batches, ends)


@compiled
def replica_end(
    forward: np.ndarray,
    backward: np.ndarray,
    weight: np.ndarray,
    stages: int,
    vpp: int,
    schedule: int,
    chain: int,
    work: np.ndarray,
    sync: np.ndarray,
    update: np.ndarray,
) -> float:
    """Latest end over the stages of one replica with the given work per micro-batch."""
    ends = np.empty(stages)
    replica_ends(forward, backward, weight, stages, vpp, schedule, chain, work, ends)
    return last_end(ends, sync, update, chain, stages)


@compiled
def last_end(ends: np.ndarray, sync: np.ndarray, update: np.ndarray, chain: int, stages: int) -> float:
    """Latest (last operation + exposed sync + optimizer) of a chain."""
    latest = 0.0
    for stage in range(stages):
        latest = max(latest, ends[stage] + sync[chain, stage, 0] + update[chain, stage])
    return latest
