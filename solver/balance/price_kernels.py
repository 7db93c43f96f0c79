"""Compiled price of one layout: lower bound, exact step time, and a batch of layouts at once.

The step of one scenario is the latest end over chains, replicas and stages of (last backward + exposed sync + optimizer), plus
the step overhead; the price is the mean over scenarios (`solver.balance.ledger`). The bound is the window bound of
search_prototype 3.
"""

from __future__ import annotations

import numpy as np

from solver.balance.deal_kernels import deal, group_rows
from solver.cost.columns import LEAST_WORK, STEP_OVERHEAD
from solver.schedules.kernels import (
    compiled,
    interleaved_ends,
    interleaved_ends_equal,
    one_f_one_b_ends,
    one_f_one_b_ends_equal,
)


@compiled
def stage_windows(
    forward: np.ndarray, backward: np.ndarray, stages: int, vpp: int, least: float, chain: int, windows: np.ndarray
) -> None:
    """Write `windows` [stages, 3]: alpha, base, slope of every stage of a chain.

    alpha = least time before its first forward and after its last backward, with `least` work; a micro-batch takes base + slope x
    work.
    """
    before = 0.0
    for stage in range(stages):
        base = 0.0
        slope = 0.0
        for chunk in range(vpp):
            virtual = chunk * stages + stage
            base += forward[chain, virtual, 0] + backward[chain, virtual, 0]
            slope += forward[chain, virtual, 1] + backward[chain, virtual, 1]
        windows[stage, 0] = before
        windows[stage, 1] = base
        windows[stage, 2] = slope
        before += (
            forward[chain, stage, 0] + backward[chain, stage, 0] + (forward[chain, stage, 1] + backward[chain, stage, 1]) * least
        )


@compiled
def longest_window(windows: np.ndarray, stages: int, micro_batches: int, work: float) -> int:
    """The stage whose window is longest when every micro-batch has `work`."""
    slowest = 0
    longest = -1.0
    for stage in range(stages):
        window = windows[stage, 0] + micro_batches * (windows[stage, 1] + windows[stage, 2] * work)
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
    work: float,
    least: float,
    chain: int,
    micro_batches: int,
    out: np.ndarray,
) -> None:
    """Write [alpha, base, slope] of the stage whose window is longest when every micro-batch has `work`."""
    windows = np.empty((stages, 3))
    stage_windows(forward, backward, stages, vpp, least, chain, windows)
    stage = longest_window(windows, stages, micro_batches, work)
    for column in range(3):
        out[column] = windows[stage, column]


@compiled
def step_bound(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    count: np.ndarray,
    micro_batches: np.ndarray,
    mbs: int,
    total_work: np.ndarray,
    sync: np.ndarray,
    update: np.ndarray,
    scalars: np.ndarray,
) -> float:
    """Seconds that no dealing of the scenarios' work can undercut.

    Per chain c the window, the sync and the optimizer of the first stage give alpha_c + m_c b_c + s_c Q_c + tail_c for a replica
    with work Q_c. Any weights that sum to 1 bound the maximum; weights count_c / s_c turn the sum of Q_c into the total work,
    whatever the dealing [P]. A chain whose longest window has no attention takes no part: the others may take the least work.
    """
    chains = count.shape[0]
    scenarios = total_work.shape[0]
    all_micro = 0
    for chain in range(chains):
        all_micro += count[chain] * micro_batches[chain]
    least = scalars[LEAST_WORK] * mbs
    windows = np.empty((chains, stages, 3))
    for chain in range(chains):
        stage_windows(forward, backward, stages, vpp, least, chain, windows[chain])
    total = 0.0
    for scenario in range(scenarios):
        mean = total_work[scenario] / max(all_micro, 1)
        weight = 0.0
        value = 0.0
        flat = 0.0
        weighed = 0
        for chain in range(chains):
            window = windows[chain, longest_window(windows[chain], stages, micro_batches[chain], mean)]
            fixed = window[0] + micro_batches[chain] * window[1] + sync[chain, 0, 0] + update[chain, 0]
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
    stages: int,
    vpp: int,
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
            equal_ends(forward, backward, stages, vpp, chain, micro_batches[chain], row_work[0, 0] * mbs, ends)
            latest = max(latest, last_end(ends, sync, update, chain, stages))
        for scenario in range(scenarios):
            per_scenario[scenario] = latest + scalars[STEP_OVERHEAD]
        return float(per_scenario[0])
    total = 0.0
    for scenario in range(scenarios):
        dealt = dealt_work(forward, backward, stages, vpp, count, micro_batches, mbs, row_work[scenario])
        latest = 0.0
        replica = 0
        for chain in range(count.shape[0]):
            for _ in range(count[chain]):
                end = replica_end(forward, backward, stages, vpp, chain, dealt[replica, : micro_batches[chain]], sync, update)
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
        slowest_stage(forward, backward, stages, vpp, mean, 0.0, chain, micro_batches[chain], window)
        base[chain] = window[1]
        slope[chain] = window[2]
    dealt = np.zeros((replicas, widest))
    deal(work, count, micro_batches, base, slope, dealt)
    return dealt


@compiled
def equal_ends(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    chain: int,
    micro_batches: int,
    work: float,
    ends: np.ndarray,
) -> None:
    """Ends of the stages' last backwards when every micro-batch has `work`."""
    span = stages * vpp
    forward_s = np.empty(span)
    backward_s = np.empty(span)
    for virtual in range(span):
        forward_s[virtual] = forward[chain, virtual, 0] + forward[chain, virtual, 1] * work
        backward_s[virtual] = backward[chain, virtual, 0] + backward[chain, virtual, 1] * work
    if vpp == 1:
        one_f_one_b_ends_equal(forward_s, backward_s, micro_batches, ends)
    else:
        interleaved_ends_equal(forward_s, backward_s, micro_batches, stages, vpp, ends)


@compiled
def replica_end(
    forward: np.ndarray,
    backward: np.ndarray,
    stages: int,
    vpp: int,
    chain: int,
    work: np.ndarray,
    sync: np.ndarray,
    update: np.ndarray,
) -> float:
    """Latest end over the stages of one replica with the given work per micro-batch."""
    span = stages * vpp
    micro_batches = work.shape[0]
    forward_s = np.empty((span, micro_batches))
    backward_s = np.empty((span, micro_batches))
    for virtual in range(span):
        for index in range(micro_batches):
            forward_s[virtual, index] = forward[chain, virtual, 0] + forward[chain, virtual, 1] * work[index]
            backward_s[virtual, index] = backward[chain, virtual, 0] + backward[chain, virtual, 1] * work[index]
    ends = np.empty(stages)
    if vpp == 1:
        one_f_one_b_ends(forward_s, backward_s, ends)
    else:
        interleaved_ends(forward_s, backward_s, stages, vpp, ends)
    return last_end(ends, sync, update, chain, stages)


@compiled
def last_end(ends: np.ndarray, sync: np.ndarray, update: np.ndarray, chain: int, stages: int) -> float:
    """Latest (last backward + exposed sync + optimizer) of a chain."""
    latest = 0.0
    for stage in range(stages):
        latest = max(latest, ends[stage] + sync[chain, stage, 0] + update[chain, stage])
    return latest
