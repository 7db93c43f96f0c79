"""Discrete-event run of one training step: every rank follows the program of its schedule, operation by operation.

This is the independent check of the compiled recurrences in `solver.schedules`: it knows only program orders and dependencies.
An operation starts once its rank has finished the one before it and its input exists: a forward needs the forward of the
previous piece, a backward (or its input half) that of the next one, the last piece's backward its own forward, a weight half its
input half. Joined operations start when both can and end together. Edges are free. Times are seconds since the start of the
step. Replicas that see other lengths run the same programs, so their times are carried as one array through one run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from solver.errors import SolverError
from solver.schedules import Operation, Schedule, get_schedule

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
    """One bar of a timeline; `micro_batch` and `virtual_stage` (the piece) are None for the work at the end of the step."""

    chain: int
    replica: int
    stage: int
    virtual_stage: int | None
    micro_batch: int | None
    kind: Literal["F", "B", "I", "W", "sync", "optimizer"]
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Simulation:
    """`scenario_s`: steps, `step_time_s` their mean; `ends_s[scenario][chain]`: ends of the ranks' last operations (since their
    first start where the schedule is post-validated), [replicas, stages]."""

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
    schedule: Schedule,
    programs: list[list[Operation]],
    forward_s: list[list[Floats]],
    backward_s: list[list[Floats]],
    weight_s: list[list[Floats]],
) -> Iterator[tuple[int, Operation, Floats, Floats]]:
    """Yield (stage, operation, start, end) of every operation, in an order in which each follows its input and its predecessor.

    `forward_s[slot][micro-batch]` are durations of all rows (independent replicas) at once; `weight_s` is the part of
    `backward_s` that a weight half takes.
    """
    stages = len(programs)
    rows = forward_s[0][0].shape
    clocks = [np.zeros(rows) for _ in programs]
    position = [0] * stages
    made: dict[tuple[str, int, int], Floats] = {}
    holders = _holders(schedule, stages, len(forward_s) // stages)
    awake = deque(range(stages))
    while awake:
        stage = awake.popleft()
        while position[stage] < len(programs[stage]):
            at = position[stage]
            together = programs[stage][at : at + (2 if programs[stage][at].joined else 1)]
            pieces = [schedule.piece(operation.chunk, stage, stages) for operation in together]
            inputs = [_input_of(operation, piece, len(holders) - 1) for operation, piece in zip(together, pieces, strict=True)]
            if any(source is not None and source not in made for source in inputs):
                break
            start = clocks[stage]
            for source in inputs:
                start = start if source is None else np.maximum(start, made[source])
            end = start
            for operation in together:
                end = end + _seconds(operation, operation.chunk * stages + stage, forward_s, backward_s, weight_s)
            clocks[stage] = end
            position[stage] += len(together)
            for operation, piece in zip(together, pieces, strict=True):
                if operation.kind != "W":
                    made["F" if operation.kind == "F" else "I", piece, operation.micro_batch] = end
                    awake.extend(
                        other for other in holders.get(piece + (1 if operation.kind == "F" else -1), ()) if other != stage
                    )
                yield stage, operation, start, end
    hanging = [(stage, programs[stage][at]) for stage, at in enumerate(position) if at < len(programs[stage])]
    if hanging:
        raise BrokenSchedule("the programs of the ranks wait for each other", hanging)


def _holders(schedule: Schedule, stages: int, vpp: int) -> dict[int, list[int]]:
    """The ranks that hold each piece."""
    found: dict[int, list[int]] = {}
    for chunk in range(vpp):
        for stage in range(stages):
            found.setdefault(schedule.piece(chunk, stage, stages), []).append(stage)
    return found


def _input_of(operation: Operation, piece: int, last: int) -> tuple[str, int, int] | None:
    kind, micro_batch = operation.kind, operation.micro_batch
    if kind == "F":
        return ("F", piece - 1, micro_batch) if piece > 0 else None
    if kind == "W":
        return ("I", piece, micro_batch)
    return ("I", piece + 1, micro_batch) if piece < last else ("F", last, micro_batch)


def _seconds(
    operation: Operation, slot: int, forward_s: list[list[Floats]], backward_s: list[list[Floats]], weight_s: list[list[Floats]]
) -> Floats:
    if operation.kind == "F":
        return forward_s[slot][operation.micro_batch]
    if operation.kind == "W":
        return weight_s[slot][operation.micro_batch]
    whole = backward_s[slot][operation.micro_batch]
    return whole if operation.kind == "B" else whole - weight_s[slot][operation.micro_batch]


def _programs(costs: StepCosts, micro_batches: int) -> list[list[Operation]]:
    schedule = get_schedule(costs.schedule)
    refusal = schedule.refusal(costs.stages, costs.vpp, micro_batches)
    if refusal is not None:
        raise BrokenSchedule(refusal)
    programs = [schedule.order(stage, costs.stages, costs.vpp, micro_batches) for stage in range(costs.stages)]
    check_programs(schedule, programs, costs.vpp, micro_batches)
    return programs


def check_programs(schedule: Schedule, programs: list[list[Operation]], vpp: int, micro_batches: int) -> None:
    """Every rank runs each of its micro-batches forward and backward once, whole or in both halves; raises BrokenSchedule."""
    wanted = {(j, chunk) for j in range(micro_batches) for chunk in range(vpp) if schedule.carries(chunk, j, micro_batches)}
    for stage, program in enumerate(programs):
        done = {kind: [(op.micro_batch, op.chunk) for op in program if op.kind == kind] for kind in ("F", "B", "I", "W")}
        whole = all(
            sorted(done["F"]) == sorted(passes) == sorted(wanted) for passes in (done["B"] + done["I"], done["B"] + done["W"])
        )
        if not whole or any(op.joined for op in program[-1:]):
            raise BrokenSchedule(f"the program of stage {stage} does not hold every operation once")


def _durations(chain: Chain, work: Floats) -> tuple[list[list[Floats]], list[list[Floats]], list[list[Floats]]]:
    """[slot][micro-batch] -> seconds of every row of `work` [rows, micro_batches], forward, backward and its weight half."""
    columns = np.ascontiguousarray(work.T)
    forward = [list(base + slope * columns) for base, slope in zip(chain.forward_base_s, chain.forward_slope_s, strict=True)]
    backward = [list(base + slope * columns) for base, slope in zip(chain.backward_base_s, chain.backward_slope_s, strict=True)]
    weight = [list(base + 0.0 * columns) for base in chain.weight_s]
    return forward, backward, weight


def _chain_ends(costs: StepCosts, chain: Chain) -> list[Floats]:
    """Per scenario the end of the ranks' last operations, [replicas, stages]; rows of equal work run once."""
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
    """[rows, stages] end of each rank's last operation, since its first start where the schedule is post-validated."""
    finished = np.zeros((work.shape[0], costs.stages))
    started: dict[int, Floats] = {}
    schedule = get_schedule(costs.schedule)
    programs = _programs(costs, work.shape[1])
    for stage, _, start, end in run_programs(schedule, programs, *_durations(chain, work)):
        started.setdefault(stage, start)
        finished[:, stage] = end
    if schedule.post_validated:
        for stage, start in started.items():
            finished[:, stage] -= start
    return finished


def _timeline(costs: StepCosts, scenario: int) -> Iterator[TimedOperation]:
    for index, chain in enumerate(costs.chains):
        work = chain.attention_work[scenario]
        done = np.zeros((work.shape[0], costs.stages))
        schedule = get_schedule(costs.schedule)
        programs = _programs(costs, work.shape[1])
        for stage, operation, start, end in run_programs(schedule, programs, *_durations(chain, work)):
            done[:, stage] = end
            virtual = schedule.piece(operation.chunk, stage, costs.stages)
            for replica, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
                yield TimedOperation(index, replica, stage, virtual, operation.micro_batch, operation.kind, begin, finish)
        synced = done + chain.sync_s
        stepped = synced + chain.optimizer_s
        for replica, stage in np.ndindex(done.shape):
            a, b, c = (float(times[replica, stage]) for times in (done, synced, stepped))
            yield TimedOperation(index, replica, stage, None, None, "sync", a, b)
            yield TimedOperation(index, replica, stage, None, None, "optimizer", b, c)
