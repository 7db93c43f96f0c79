"""What every schedule must satisfy, whichever files solver/schedules holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.layout import SCHEDULE_KINDS
from solver.layout import Schedule as ScheduleRecord
from solver.schedules import Schedule, UnknownSchedule, get_schedule, schedules
from solver.schedules.dispatch import holds_first, holds_last, in_flight, piece_of, pieces_of, schedule_ends
from solver.simulate import check_programs, run_programs

SHAPES = [(p, v, m) for p in (1, 2, 3, 4, 7, 8) for v in (1, 2, 3) for m in (1, 2, 3, 4, 5, 6, 8, 14, 16, 20, 21)]


@pytest.fixture(params=sorted(schedules()))
def schedule(request):
    return get_schedule(request.param)


def shapes_of(schedule):
    return [shape for shape in SHAPES if schedule.refusal(*shape) is None]


def programs_of(schedule, stages, vpp, micro_batches):
    return [schedule.order(stage, stages, vpp, micro_batches) for stage in range(stages)]


def simulated(schedule, stages, vpp, micro_batches, forward_s, backward_s, weight_s):
    """What every rank needs, from seconds [slots, micro-batches or 1]."""
    columns = [
        [[np.array([row[j % len(row)]]) for j in range(micro_batches)] for row in times]
        for times in (forward_s, backward_s, weight_s)
    ]
    programs = programs_of(schedule, stages, vpp, micro_batches)
    first, ends = {}, np.zeros(stages)
    for stage, _, start, end in run_programs(schedule, programs, *columns):
        first.setdefault(stage, start[0])
        ends[stage] = end[0]
    return ends - np.array([first[stage] for stage in range(stages)]) if schedule.post_validated else ends


def compiled(schedule, stages, vpp, micro_batches, forward_s, backward_s, weight_s):
    ends = np.empty(stages)
    schedule_ends(schedule.code, forward_s, backward_s, weight_s, stages, vpp, micro_batches, ends)
    return ends


def test_is_found_under_its_kind(schedule):
    assert isinstance(schedule, Schedule)
    assert schedules()[schedule.kind] is schedule


def test_unknown_kind_names_the_known_ones():
    with pytest.raises(UnknownSchedule) as caught:
        get_schedule("zigzag")
    assert caught.value.allowed == tuple(schedules())


def test_runs_some_pipelines(schedule):
    assert len(shapes_of(schedule)) >= 10


def test_layouts_and_kernels_place_its_chunks_alike(schedule):
    record = ScheduleRecord(kind=schedule.kind)
    assert (record.code, record.copies) == (schedule.code, schedule.copies)
    assert SCHEDULE_KINDS[schedule.code] == schedule.kind
    for stages, vpp, _ in shapes_of(schedule):
        assert record.goes_with(vpp)
        last = schedule.pieces(stages, vpp) - 1
        assert record.pieces(stages, vpp) == pieces_of(schedule.code, stages, vpp) == last + 1
        for stage in range(stages):
            pieces = [schedule.piece(chunk, stage, stages) for chunk in range(vpp)]
            assert pieces == [record.piece(chunk, stage, stages) for chunk in range(vpp)]
            assert pieces == [piece_of(schedule.code, chunk, stage, stages) for chunk in range(vpp)]
            assert holds_first(schedule.code, stage, stages) == (0 in pieces)
            assert holds_last(schedule.code, stage, stages) == (last in pieces)


def test_every_piece_is_held_by_its_copies(schedule):
    for stages, vpp, _ in shapes_of(schedule):
        held = [schedule.piece(chunk, stage, stages) for chunk in range(vpp) for stage in range(stages)]
        assert sorted(held) == sorted(list(range(schedule.pieces(stages, vpp))) * schedule.copies)


def test_every_operation_once(schedule):
    for shape in shapes_of(schedule):
        check_programs(schedule, programs_of(schedule, *shape), shape[1], shape[2])


def test_never_deadlocks(schedule):
    for shape in shapes_of(schedule):
        ones = np.ones((shape[0] * shape[1], 1))
        assert simulated(schedule, *shape, ones, 2 * ones, ones).min() > 0


def test_holds_the_activations_it_says(schedule):
    for stages, vpp, micro_batches in shapes_of(schedule):
        for stage, program in enumerate(programs_of(schedule, stages, vpp, micro_batches)):
            held = np.max(np.cumsum([{"F": 1, "B": -1, "I": 0, "W": -1}[operation.kind] for operation in program]))
            assert schedule.in_flight(stage, stages, vpp, micro_batches) == pytest.approx(held / vpp)
            assert in_flight(schedule.code, stage, stages, vpp, micro_batches) == pytest.approx(held / vpp)


def test_bubble_of_equal_stages_is_at_most_that_of_1f1b(schedule):
    """Where the order is not that of a longer run with micro-batches left out."""
    for stages, vpp, micro_batches in shapes_of(schedule):
        ones = np.ones((stages * vpp, 1)) * schedule.copies / vpp
        end = compiled(schedule, stages, vpp, micro_batches, ones, 2 * ones, ones).max()
        assert 3.0 * micro_batches <= end + 1e-9
        if schedule.closed_form_s(stages, vpp, micro_batches, 1.0, 1.0, 1.0) is not None:
            assert end <= 3.0 * (micro_batches + stages - 1) + 1e-9


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_recurrence_equals_the_simulated_order(data):
    kind = data.draw(st.sampled_from(SCHEDULE_KINDS))
    schedule = get_schedule(kind)
    shape = data.draw(st.sampled_from(shapes_of(schedule)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    columns = data.draw(st.sampled_from([1, shape[2]]))
    forward_s, input_s, weight_s = rng.uniform(0.01, 2, (3, shape[0] * shape[1], columns))
    times = (forward_s, input_s + weight_s, weight_s)
    assert compiled(schedule, *shape, *times) == pytest.approx(simulated(schedule, *shape, *times), rel=1e-12)


@given(st.data(), *[st.floats(0.05, 20.0)] * 3, st.booleans())
@settings(max_examples=300, deadline=None)
def test_recurrence_of_equal_stages_equals_the_closed_form(data, forward_s, input_s, weight_s, thirds):
    schedule = get_schedule(data.draw(st.sampled_from(SCHEDULE_KINDS)))
    stages, vpp, micro_batches = data.draw(st.sampled_from(shapes_of(schedule)))
    if thirds:
        input_s = weight_s = forward_s
    form = schedule.closed_form_s(stages, vpp, micro_batches, forward_s, input_s, weight_s)
    ones = np.ones((stages * vpp, 1)) / vpp
    ends = compiled(schedule, stages, vpp, micro_batches, ones * forward_s, ones * (input_s + weight_s), ones * weight_s)
    if form is not None:
        assert ends.max() == pytest.approx(form, rel=1e-9)


def test_every_schedule_has_a_closed_form_somewhere(schedule):
    forms = [schedule.closed_form_s(*shape, 1.0, 1.0, 1.0) for shape in shapes_of(schedule)]
    assert len([form for form in forms if form is not None]) >= 10


@pytest.mark.parametrize(
    ("kind", "vpp", "bubble"),
    [
        ("gpipe", 1, 7 * 3.0),
        ("1f1b", 1, 7 * 3.0),
        ("interleaved", 4, 7 * 3.0 / 4),
        ("zero_bubble_h1", 1, 7 * (1.0 + 2.0 - 2.0)),
        ("zero_bubble_h2", 1, 7 * (1.0 + 2.0 - 3.0)),
        ("zero_bubble_v", 2, 0.0),
        ("dualpipe", 2, (8 / 2 - 1) * (3.0 + 2.0 - 3.0)),
        ("dualpipe_v", 2, (8 - 1) * (3.0 + 2.0 - 3.0) / 2),
    ],
)
def test_published_bubbles(kind, vpp, bubble):
    """8 stages, 32 micro-batches, F = I = W = 1 a stage (cost_models 1.4: Narayanan 2021, Qi 2024, DeepSeek's table).

    DualPipeV's formula is in seconds of one of its two pieces per rank, DualPipe's in those of one of its two copies.
    """
    schedule = get_schedule(kind)
    ones = np.ones((8 * vpp, 1)) * schedule.copies / vpp
    assert compiled(schedule, 8, vpp, 32, ones, 2 * ones, ones).max() - 32 * 3.0 == pytest.approx(bubble)


@pytest.mark.parametrize(
    ("kind", "vpp", "held"),
    [
        ("gpipe", 1, [32] * 8),
        ("1f1b", 1, [8, 7, 6, 5, 4, 3, 2, 1]),
        ("interleaved", 2, [(2 * (7 - i) + 8 + 1) / 2 for i in range(8)]),
        ("zero_bubble_h1", 1, [8] * 8),
        ("zero_bubble_h2", 1, [15] * 8),
        ("zero_bubble_v", 2, [8] * 8),
        ("dualpipe", 2, [9 / 2] * 8),
        ("dualpipe_v", 2, [17 / 2] * 8),
    ],
)
def test_published_activations(kind, vpp, held):
    """In micro-batches of all chunks of a rank; DualPipe's p + 1 are of one of its two copies (cost_models 1.4)."""
    assert [get_schedule(kind).in_flight(stage, 8, vpp, 32) for stage in range(8)] == held
