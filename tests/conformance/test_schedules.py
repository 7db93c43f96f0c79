"""What every schedule must satisfy, whichever files solver/schedules holds."""

import numpy as np
import pytest

from solver.schedules import Schedule, UnknownSchedule, get_schedule, schedules
from solver.simulate import check_programs, run_programs

SHAPES = [(p, v, m) for p in (1, 2, 3, 4, 7) for v in (1, 2, 3) for m in (1, 2, 3, 4, 6, 8, 14, 21)]


@pytest.fixture(params=sorted(schedules()))
def schedule(request):
    return get_schedule(request.param)


def shapes_of(schedule):
    return [shape for shape in SHAPES if schedule.refusal(*shape) is None]


def programs_of(schedule, stages, vpp, micro_batches):
    return [schedule.order(stage, stages, vpp, micro_batches) for stage in range(stages)]


def test_is_found_under_its_kind(schedule):
    assert isinstance(schedule, Schedule)
    assert schedules()[schedule.kind] is schedule


def test_unknown_kind_names_the_known_ones():
    with pytest.raises(UnknownSchedule) as caught:
        get_schedule("zigzag")
    assert caught.value.allowed == tuple(schedules())


def test_runs_some_pipelines(schedule):
    assert len(shapes_of(schedule)) >= 10


def test_every_operation_once(schedule):
    for shape in shapes_of(schedule):
        check_programs(programs_of(schedule, *shape), shape[1], shape[2])


def test_never_deadlocks(schedule):
    for stages, vpp, micro_batches in shapes_of(schedule):
        times = [[np.ones(1)] * micro_batches for _ in range(stages * vpp)]
        run = list(run_programs(programs_of(schedule, stages, vpp, micro_batches), times, times))
        assert len(run) == 2 * stages * vpp * micro_batches


def test_holds_the_activations_it_says(schedule):
    for stages, vpp, micro_batches in shapes_of(schedule):
        for stage, program in enumerate(programs_of(schedule, stages, vpp, micro_batches)):
            held = np.max(np.cumsum([1 if operation.kind == "F" else -1 for operation in program]))
            assert schedule.in_flight(stage, stages, vpp, micro_batches) == pytest.approx(held / vpp)


def test_bubble_of_equal_stages_is_at_most_that_of_1f1b(schedule):
    for stages, vpp, micro_batches in shapes_of(schedule):
        forward = [[np.full(1, 1.0 / vpp)] * micro_batches for _ in range(stages * vpp)]
        backward = [[np.full(1, 2.0 / vpp)] * micro_batches for _ in range(stages * vpp)]
        *_, (_, _, _, end) = run_programs(programs_of(schedule, stages, vpp, micro_batches), forward, backward)
        assert 3.0 * micro_batches <= end[0] + 1e-9 <= 3.0 * (micro_batches + stages - 1) + 2e-9
