"""The discrete-event run against the compiled recurrences, closed forms and broken programs."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.layout import SCHEDULE_KINDS, TWO_CHUNKS
from solver.schedules import Operation, get_schedule
from solver.schedules.dispatch import schedule_ends
from solver.simulate import BrokenSchedule, check_programs, run_programs, simulate


@dataclass(frozen=True)
class Chain:
    count: int
    groups: tuple
    forward_base_s: np.ndarray
    forward_slope_s: np.ndarray
    backward_base_s: np.ndarray
    backward_slope_s: np.ndarray
    weight_s: np.ndarray
    attention_work: tuple
    sync_s: np.ndarray
    optimizer_s: np.ndarray


@dataclass(frozen=True)
class StepCosts:
    schedule: str
    vpp: int
    stages: int
    chains: tuple
    step_overhead_s: float


def random_chain(rng, stages, vpp, micro_batches, replicas, scenarios):
    virtual = stages * vpp
    work = tuple(rng.choice([0.5, 1.0, 4.0], size=(replicas, micro_batches)) for _ in range(scenarios))
    forward, forward_slope, backward, backward_slope = rng.uniform(0.01, 2, (4, virtual))
    weight = backward * rng.uniform(0.1, 0.9, virtual)
    sync, optimizer = rng.uniform(0, 1, (2, stages))
    return Chain(replicas, ("g",) * stages, forward, forward_slope, backward, backward_slope, weight, work, sync, optimizer)


def random_costs(rng):
    kind = str(rng.choice(SCHEDULE_KINDS))
    stages, vpp = 2 * int(rng.integers(1, 4)), 2 if kind in TWO_CHUNKS else 1
    if kind not in TWO_CHUNKS:
        stages, vpp = int(rng.integers(1, 6)), int(rng.integers(2, 4)) if kind == "interleaved" else 1
    scenarios = int(rng.integers(1, 4))
    chains = []
    for _ in range(int(rng.integers(1, 3))):
        micro_batches = 2 * stages + 2 * int(rng.integers(0, 6)) if kind.startswith("dualpipe") else int(rng.integers(1, 18))
        chains.append(random_chain(rng, stages, vpp, micro_batches, int(rng.integers(1, 4)), scenarios))
    return StepCosts(kind, vpp, stages, tuple(chains), float(rng.uniform(0, 1)))


def scenario_by_kernels(costs, scenario):
    worst = 0.0
    for chain in costs.chains:
        for work in chain.attention_work[scenario]:
            forward = chain.forward_base_s[:, None] + chain.forward_slope_s[:, None] * work
            backward = chain.backward_base_s[:, None] + chain.backward_slope_s[:, None] * work
            weight = np.repeat(chain.weight_s[:, None], len(work), axis=1)
            ends = np.empty(costs.stages)
            code = get_schedule(costs.schedule).code
            schedule_ends(code, forward, backward, weight, costs.stages, costs.vpp, len(work), ends)
            worst = max(worst, float(np.max(ends + chain.sync_s + chain.optimizer_s)))
    return worst + costs.step_overhead_s


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_the_recurrences(seed):
    costs = random_costs(np.random.default_rng(seed))
    scenarios = [scenario_by_kernels(costs, s) for s in range(len(costs.chains[0].attention_work))]
    outcome = simulate(costs)
    assert outcome.scenario_s == pytest.approx(scenarios, rel=1e-9)
    assert outcome.step_time_s == pytest.approx(np.mean(scenarios), rel=1e-9)


def equal_costs(stages, vpp, micro_batches, forward_s, backward_s):
    ones, nothing = np.ones(stages * vpp), np.zeros(stages)
    chain = Chain(
        1,
        ("g",) * stages,
        ones * forward_s,
        0 * ones,
        ones * backward_s,
        0 * ones,
        0.5 * ones * backward_s,
        (np.ones((1, micro_batches)),),
        nothing,
        nothing,
    )
    return StepCosts("interleaved" if vpp > 1 else "1f1b", vpp, stages, (chain,), 0.0)


@given(st.integers(1, 8), st.integers(1, 20), st.floats(0.1, 5), st.floats(0.1, 5))
@settings(max_examples=50, deadline=None)
def test_equal_stages_have_the_closed_form(stages, micro_batches, forward_s, backward_s):
    outcome = simulate(equal_costs(stages, 1, micro_batches, forward_s, backward_s))
    assert outcome.step_time_s == pytest.approx((micro_batches + stages - 1) * (forward_s + backward_s), rel=1e-9)


@given(st.integers(1, 6), st.integers(2, 4), st.integers(1, 4), st.floats(0.1, 5), st.floats(0.1, 5))
@settings(max_examples=50, deadline=None)
def test_interleaving_divides_the_bubble(stages, vpp, groups, forward_s, backward_s):
    outcome = simulate(equal_costs(stages, vpp, groups * stages, forward_s, backward_s))
    busy = groups * stages * vpp * (forward_s + backward_s)
    assert outcome.step_time_s == pytest.approx(busy + (stages - 1) * (forward_s + backward_s), rel=1e-9)


def test_scenarios_may_have_other_numbers_of_micro_batches():
    rng = np.random.default_rng(5)
    chain = random_chain(rng, 3, 1, 4, 2, 1)
    work = (*chain.attention_work, np.ones((2, 7)))
    costs = StepCosts("1f1b", 1, 3, (Chain(**{**chain.__dict__, "attention_work": work}),), 0.0)
    assert simulate(costs).scenario_s == pytest.approx([scenario_by_kernels(costs, s) for s in range(2)], rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_timeline_is_a_valid_run(seed):
    rng = np.random.default_rng(seed)
    costs = random_costs(rng)
    scenario = len(costs.chains[0].attention_work) - 1
    outcome = simulate(costs, timeline_of=scenario)
    schedule = get_schedule(costs.schedule)
    ranks = {}
    for bar in sorted(outcome.timeline, key=lambda bar: (bar.start_s, bar.end_s)):
        ranks.setdefault((bar.chain, bar.replica, bar.stage), []).append(bar)
    for bars in ranks.values():
        for before, after in pairwise(bars):
            joined = {before.kind, after.kind} == {"F", "B"} and (before.start_s, before.end_s) == (after.start_s, after.end_s)
            assert joined or after.start_s >= before.end_s - 1e-9
    spans = [bars[-1].end_s - (bars[0].start_s if schedule.post_validated else 0.0) for bars in ranks.values()]
    assert max(spans) + costs.step_overhead_s == pytest.approx(outcome.scenario_s[scenario])
    found = {(b.chain, b.replica, "I" if b.kind == "B" else b.kind, b.virtual_stage, b.micro_batch): b for b in outcome.timeline}
    for (chain, replica, kind, piece, micro_batch), bar in found.items():
        if kind == "F" and piece > 0:
            assert bar.start_s >= found[chain, replica, "F", piece - 1, micro_batch].end_s
        if kind == "I":
            after = found.get((chain, replica, "I", piece + 1, micro_batch))
            assert bar.start_s >= (after or found[chain, replica, "F", piece, micro_batch]).end_s
        if kind == "W":
            assert bar.start_s >= found[chain, replica, "I", piece, micro_batch].end_s
    passes = {chain: len({key[2:] for key in found if key[0] == chain and key[2] == "F"}) for chain in range(len(costs.chains))}
    for chain, entry in enumerate(costs.chains):
        assert passes[chain] == schedule.pieces(costs.stages, costs.vpp) * entry.attention_work[scenario].shape[1]


def test_programs_that_wait_for_each_other_are_named():
    programs = [
        [Operation("F", 0, 0), Operation("B", 0, 0), Operation("F", 1, 0), Operation("B", 1, 0)],
        [Operation("F", 1, 0), Operation("F", 0, 0), Operation("B", 0, 0), Operation("B", 1, 0)],
    ]
    times = [[np.ones(1)] * 2] * 2
    with pytest.raises(BrokenSchedule) as caught:
        list(run_programs(get_schedule("1f1b"), programs, times, times, times))
    assert caught.value.waiting == ((0, Operation("B", 0, 0)), (1, Operation("F", 1, 0)))
    assert "stage 1 waits at F 1" in str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        [Operation("F", 0, 0)],
        [Operation("F", 0, 0), Operation("B", 0, 0), Operation("B", 0, 0)],
        [Operation("F", 0, 0), Operation("I", 0, 0)],
        [Operation("F", 0, 0), Operation("B", 0, 0), Operation("W", 0, 0)],
        [Operation("F", 0, 0), Operation("B", 0, 0, joined=True)],
        [Operation("F", 0, 1), Operation("B", 0, 1)],
    ],
)
def test_programs_that_leave_something_out_are_refused(program):
    with pytest.raises(BrokenSchedule, match="stage 0"):
        check_programs(get_schedule("1f1b"), [program], 1, 1)


def test_a_pipeline_the_schedule_cannot_run_is_refused():
    with pytest.raises(BrokenSchedule, match="even number of micro-batches"):
        simulate(StepCosts(**{**equal_costs(2, 2, 3, 1.0, 1.0).__dict__, "schedule": "dualpipe"}))


def test_measured_order_of_schedules():
    """Primus on 8 stages (llama2-7b, data/measurements/primus_amd.csv): 235.7 TFLOP/s with 1F1B, 257.3 interleaved with 2 chunks,
    265.9 ZB-V. The batch is not stated: 64 micro-batches here. (Its zero-bubble schedules are fitted to the profile of the run.)
    """
    steps = {}
    for kind, vpp in (("1f1b", 1), ("interleaved", 2), ("zero_bubble_v", 2)):
        costs = equal_costs(8, vpp, 64, 1.0 / vpp, 2.0 / vpp)
        steps[kind] = simulate(StepCosts(**{**costs.__dict__, "schedule": kind})).step_time_s
    assert steps["1f1b"] > steps["interleaved"] > steps["zero_bubble_v"]
