"""Discrete-event run of one training step: every rank follows the program of its schedule, operation by operation.

This is the independent check of the compiled recurrences in `solver.schedules.kernels`: it knows only program orders and
dependencies. An operation starts once its rank has finished the one before it and its input exists: a forward needs the
forward of the previous virtual stage, a backward that of the next one, the last virtual stage's backward its own forward.
Edges are free. Times are seconds since the start of the step. Replicas that see other lengths run the same programs, so their
times are carried as one array through one run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from solver.errors import SolverError
from solver.schedules import Operation, get_schedule

if TYPE_CHECKING:
    from solver.balance.ledger import Chain, StepCosts

Floats = NDArray[np.float64]
LONG_RUN = 30_000
"""operations of one chain that are run one by one"""
LEAST_ROUNDS = 8
"""groups of `stages` micro-batches after which a pipeline of equal micro-batches is taken to be periodic"""


class BrokenSchedule(SolverError):
    """The programs of the ranks cannot be run to their end; `waiting` lists (stage, operation) of the ranks that hang."""

    code = "broken_schedule"

    def __init__(self, message: str, waiting: Iterable[tuple[int, Operation]] = ()) -> None:
        self.message = message
        self.waiting = tuple(waiting)
        hangs = "; ".join(f"stage {stage} waits at {op.kind} {op.micro_batch} of chunk {op.chunk}" for stage, op in self.waiting)
        super().__init__(f"{message}: {hangs}" if hangs else message)

    def __reduce__(self) -> tuple[type[BrokenSchedule], tuple[str, tuple[tuple[int, Operation], ...]]]:
        return (type(self), (self.message, self.waiting))


@dataclass(frozen=True)
class TimedOperation:
    """One bar of a timeline; `micro_batch` and `virtual_stage` are None for the work at the end of the step."""

    chain: int
    replica: int
    stage: int
    virtual_stage: int | None
    micro_batch: int | None
    kind: Literal["F", "B", "sync", "optimizer"]
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Simulation:
    """`scenario_s`: steps, `step_time_s` their mean; `ends_s[scenario][chain]`: last backwards, [replicas, stages]."""

    step_time_s: float
    scenario_s: tuple[float, ...]
    ends_s: tuple[tuple[Floats, ...], ...]
    timeline: tuple[TimedOperation, ...] = ()


def simulate(costs: StepCosts, timeline_of: int | None = None) -> Simulation:
    """Run every chain and replica of every scenario; `timeline_of` names the scenario whose operations are listed."""
    per_chain = [_chain_ends(costs, chain) for chain in costs.chains]
    scenarios = len(per_chain[0])
    ends = tuple(tuple(chain_ends[scenario] for chain_ends in per_chain) for scenario in range(scenarios))
    steps = tuple(
        max(float(np.max(rows + (chain.sync_s + chain.optimizer_s))) for rows, chain in zip(row, costs.chains, strict=True))
        + costs.step_overhead_s
        for row in ends
    )
    timeline = tuple(_timeline(costs, timeline_of)) if timeline_of is not None else ()
    return Simulation(sum(steps) / len(steps), steps, ends, timeline)


def run_programs(
    programs: list[list[Operation]], forward_s: list[list[Floats]], backward_s: list[list[Floats]]
) -> Iterator[tuple[int, Operation, Floats, Floats]]:
    """Yield (stage, operation, start, end) of every operation, in an order in which each follows its input and its predecessor.

    `forward_s[virtual stage][micro-batch]` and `backward_s` are durations of all rows (independent replicas) at once.
    """
    stages = len(programs)
    last = len(forward_s) - 1
    rows = forward_s[0][0].shape
    clocks = [np.zeros(rows) for _ in programs]
    position = [0] * stages
    made: dict[tuple[str, int, int], Floats] = {}
    awake = deque(range(stages))
    while awake:
        stage = awake.popleft()
        while position[stage] < len(programs[stage]):
            operation = programs[stage][position[stage]]
            kind, micro_batch, chunk = operation
            here = chunk * stages + stage
            source = _input_of(kind, here, micro_batch, last)
            ready = None
            if source is not None:
                ready = made.pop(source, None)
                if ready is None:
                    break
            start = clocks[stage] if ready is None else np.maximum(clocks[stage], ready)
            end = start + (forward_s if kind == "F" else backward_s)[here][micro_batch]
            clocks[stage] = end
            following = here + 1 if kind == "F" else here - 1
            if following >= 0:
                made[kind, here, micro_batch] = end
            if 0 <= following <= last and following % stages != stage:
                awake.append(following % stages)
            position[stage] += 1
            yield stage, operation, start, end
    hanging = [(stage, programs[stage][at]) for stage, at in enumerate(position) if at < len(programs[stage])]
    if hanging:
        raise BrokenSchedule("the programs of the ranks wait for each other", hanging)


def _input_of(kind: str, here: int, micro_batch: int, last: int) -> tuple[str, int, int] | None:
    if kind == "F":
        return ("F", here - 1, micro_batch) if here > 0 else None
    return ("B", here + 1, micro_batch) if here < last else ("F", last, micro_batch)


def _programs(costs: StepCosts, micro_batches: int) -> list[list[Operation]]:
    schedule = get_schedule(costs.schedule)
    refusal = schedule.refusal(costs.stages, costs.vpp, micro_batches)
    if refusal is not None:
        raise BrokenSchedule(refusal)
    programs = [schedule.order(stage, costs.stages, costs.vpp, micro_batches) for stage in range(costs.stages)]
    check_programs(programs, costs.vpp, micro_batches)
    return programs


def check_programs(programs: list[list[Operation]], vpp: int, micro_batches: int) -> None:
    """Every rank runs the forward and the backward of every chunk and micro-batch once; raises BrokenSchedule."""
    wanted = {Operation(kind, j, chunk) for kind in ("F", "B") for j in range(micro_batches) for chunk in range(vpp)}
    for stage, program in enumerate(programs):
        if len(program) != len(wanted) or set(program) != wanted:
            raise BrokenSchedule(f"the program of stage {stage} does not hold every operation once")


def _durations(chain: Chain, work: Floats) -> tuple[list[list[Floats]], list[list[Floats]]]:
    """[virtual stage][micro-batch] -> seconds of every row of `work` [rows, micro_batches]."""
    columns = np.ascontiguousarray(work.T)
    forward = [list(base + slope * columns) for base, slope in zip(chain.forward_base_s, chain.forward_slope_s, strict=True)]
    backward = [list(base + slope * columns) for base, slope in zip(chain.backward_base_s, chain.backward_slope_s, strict=True)]
    return forward, backward


def _chain_ends(costs: StepCosts, chain: Chain) -> list[Floats]:
    """Per scenario the end of the last backward, [replicas, stages]; rows of equal work run once."""
    ends: list[Floats] = [np.empty(0)] * len(chain.attention_work)
    for micro_batches in sorted({work.shape[1] for work in chain.attention_work}):
        members = [s for s, work in enumerate(chain.attention_work) if work.shape[1] == micro_batches]
        stacked = np.concatenate([chain.attention_work[s] for s in members])
        if np.ptp(stacked) == 0.0:
            distinct, where = stacked[:1], np.zeros(len(stacked), dtype=np.int64)
        else:
            distinct, where = np.unique(stacked, axis=0, return_inverse=True)
        finished = _finished(costs, chain, distinct)[where.reshape(-1)]
        sizes = [chain.attention_work[s].shape[0] for s in members]
        for scenario, rows in zip(members, np.split(finished, np.cumsum(sizes)[:-1]), strict=True):
            ends[scenario] = rows
    return ends


def _finished(costs: StepCosts, chain: Chain, work: Floats) -> Floats:
    """As `_last_backwards`; a long run of equal micro-batches is periodic once its pipeline is full: its middle is skipped."""
    micro_batches = work.shape[1]
    rounds = LONG_RUN // (costs.stages * costs.stages * costs.vpp)
    shorter = costs.stages * max(rounds, LEAST_ROUNDS) + micro_batches % costs.stages
    if shorter + costs.stages >= micro_batches or np.ptp(work, axis=1).any():
        return _last_backwards(costs, chain, work)
    one = _last_backwards(costs, chain, work[:, :shorter])
    two = _last_backwards(costs, chain, work[:, : shorter + costs.stages])
    finished: Floats = one + (two - one) * ((micro_batches - shorter) // costs.stages)
    return finished


def _last_backwards(costs: StepCosts, chain: Chain, work: Floats) -> Floats:
    finished = np.zeros((work.shape[0], costs.stages))
    programs = _programs(costs, work.shape[1])
    for stage, operation, _, end in run_programs(programs, *_durations(chain, work)):
        if operation.kind == "B":
            finished[:, stage] = end
    return finished


def _timeline(costs: StepCosts, scenario: int) -> Iterator[TimedOperation]:
    for index, chain in enumerate(costs.chains):
        work = chain.attention_work[scenario]
        done = np.zeros((work.shape[0], costs.stages))
        for stage, operation, start, end in run_programs(_programs(costs, work.shape[1]), *_durations(chain, work)):
            done[:, stage] = end
            virtual = operation.chunk * costs.stages + stage
            for replica, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
                yield TimedOperation(index, replica, stage, virtual, operation.micro_batch, operation.kind, begin, finish)
        synced = done + chain.sync_s
        stepped = synced + chain.optimizer_s
        for replica, stage in np.ndindex(done.shape):
            a, b, c = (float(times[replica, stage]) for times in (done, synced, stepped))
            yield TimedOperation(index, replica, stage, None, None, "sync", a, b)
            yield TimedOperation(index, replica, stage, None, None, "optimizer", b, c)
