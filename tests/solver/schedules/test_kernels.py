"""The compiled recurrences against a direct fixed point over program orders, and their shortcuts against the full recurrences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.schedules import get_schedule
from solver.schedules.kernels import (
    interleaved_ends,
    interleaved_ends_equal,
    interleaved_warmup,
    one_f_one_b_ends,
    one_f_one_b_ends_equal,
    one_f_one_b_warmup,
)


def ends_by_relaxation(kind, forward_s, backward_s, stages, vpp):
    """Ends of all operations as the least fixed point of 'start >= predecessor and input', found by repeated sweeps."""
    micro_batches = forward_s.shape[1]
    programs = [get_schedule(kind).order(i, stages, vpp, micro_batches) for i in range(stages)]
    end = {}
    changed = True
    while changed:
        changed = False
        for stage, program in enumerate(programs):
            clock = 0.0
            for kind_, j, chunk, _ in program:
                k = chunk * stages + stage
                if kind_ == "F":
                    ready = end.get(("F", k - 1, j), 0.0)
                else:
                    ready = end.get(("B", k + 1, j), 0.0) if k < stages * vpp - 1 else end.get(("F", k, j), 0.0)
                clock = max(clock, ready) + (forward_s if kind_ == "F" else backward_s)[k, j]
                changed |= end.get((kind_, k, j)) != clock
                end[kind_, k, j] = clock
    return np.array([max(end["B", c * stages + i, j] for c in range(vpp) for j in range(micro_batches)) for i in range(stages)])


def unequal_costs(rng, stages):
    """Equal, nearly equal, mildly and strongly unequal stages."""
    spread = rng.choice([0.0, 1e-13, 1e-9, 1e-5, 1e-3, 0.1, 2.0, 50.0])
    forward, backward = 1 + spread * rng.random(stages), 2 + spread * rng.random(stages)
    if rng.random() < 0.3:
        forward[-1] *= 1 + rng.random()
    return forward, backward


@pytest.mark.parametrize("seed", range(4))
def test_1f1b_equals_the_fixed_point(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        stages, micro_batches = int(rng.integers(1, 8)), int(rng.integers(1, 16))
        forward, backward = rng.uniform(0.01, 2, (2, stages, micro_batches))
        ends = np.empty(stages)
        one_f_one_b_ends(forward, backward, ends)
        assert ends == pytest.approx(ends_by_relaxation("1f1b", forward, backward, stages, 1), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_interleaved_equals_the_fixed_point(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        stages, vpp = int(rng.integers(1, 6)), int(rng.integers(2, 5))
        micro_batches = int(rng.integers(1, 5 * stages))
        forward, backward = rng.uniform(0.01, 2, (2, stages * vpp, micro_batches))
        ends = np.empty(stages)
        interleaved_ends(forward, backward, stages, vpp, ends)
        assert ends == pytest.approx(ends_by_relaxation("interleaved", forward, backward, stages, vpp), rel=1e-12)


def test_1f1b_shortcut_is_exact_on_5000_pipelines():
    rng = np.random.default_rng(11)
    for _ in range(5000):
        stages, micro_batches = int(rng.integers(1, 24)), int(rng.integers(1, 600))
        forward, backward = unequal_costs(rng, stages)
        ends, full = np.empty(stages), np.empty(stages)
        one_f_one_b_ends_equal(forward, backward, micro_batches, ends)
        columns = [np.repeat(times[:, None], micro_batches, axis=1) for times in (forward, backward)]
        one_f_one_b_ends(columns[0], columns[1], full)
        assert np.max(np.abs(ends / full - 1)) <= 1e-12, (forward, backward, micro_batches)


def test_interleaved_shortcut_is_exact_on_2000_pipelines():
    rng = np.random.default_rng(12)
    for _ in range(2000):
        stages, vpp = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        micro_batches = int(rng.integers(1, 40 * stages))
        forward, backward = unequal_costs(rng, stages * vpp)
        ends, full = np.empty(stages), np.empty(stages)
        interleaved_ends_equal(forward, backward, micro_batches, stages, vpp, ends)
        columns = [np.repeat(times[:, None], micro_batches, axis=1) for times in (forward, backward)]
        interleaved_ends(columns[0], columns[1], stages, vpp, full)
        assert np.max(np.abs(ends / full - 1)) <= 1e-12, (forward, backward, micro_batches)


@given(st.integers(1, 40), st.integers(1, 500), st.floats(1e-6, 10), st.floats(1e-6, 10))
@settings(max_examples=200, deadline=None)
def test_1f1b_of_equal_stages_has_the_closed_form(stages, micro_batches, forward_s, backward_s):
    ends = np.empty(stages)
    one_f_one_b_ends_equal(np.full(stages, forward_s), np.full(stages, backward_s), micro_batches, ends)
    assert ends[0] == pytest.approx((micro_batches + stages - 1) * (forward_s + backward_s), rel=1e-11)


@given(st.integers(1, 16), st.integers(2, 8), st.integers(1, 30), st.floats(1e-3, 10), st.floats(1e-3, 10))
@settings(max_examples=200, deadline=None)
def test_interleaving_divides_the_bubble(stages, vpp, groups, forward_s, backward_s):
    """Step (m + (p-1)/v)(F+B) for equal chunks, F and B being those of the whole stage."""
    ends = np.empty(stages)
    chunks = np.ones(stages * vpp) / vpp
    interleaved_ends_equal(chunks * forward_s, chunks * backward_s, groups * stages, stages, vpp, ends)
    assert ends[0] == pytest.approx((groups * stages + (stages - 1) / vpp) * (forward_s + backward_s), rel=1e-11)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 8), st.data())
@settings(max_examples=100, deadline=None)
def test_counts_agree_with_the_schedules(stages, vpp, groups, data):
    stage = data.draw(st.integers(0, stages - 1))
    schedule = get_schedule("interleaved" if vpp > 1 else "1f1b")
    micro_batches = groups * stages
    program = schedule.order(stage, stages, vpp, micro_batches)
    first_backward = next(index for index, operation in enumerate(program) if operation.kind == "B")
    count = (
        one_f_one_b_warmup(stage, stages, micro_batches) if vpp == 1 else interleaved_warmup(stage, stages, vpp, micro_batches)
    )
    assert first_backward == min(count + 1, micro_batches * vpp)
