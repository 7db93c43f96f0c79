"""Seconds of every operation of one step: what the schedule, `simulate` and `certify` take from the cost model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.balance.batch_kernels import taken_work
from solver.balance.end_kernels import step_ends
from solver.balance.price_kernels import dealt_work, step_bound, step_seconds
from solver.cost import columns as col
from solver.cost.laid_out import LaidOut, lay_out
from solver.cost.memory_kernels import MEMORY_COLUMNS, SAFE, stage_states, stage_verdict
from solver.cost.table import CostModel, cost_model
from solver.cost.time_kernels import operation_seconds
from solver.layout import Layout
from solver.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """`count` equal replicas of a pipeline; seconds per slot k (chunk k // stages of stage k % stages), base + slope x attention
    work; `weight_s` is the part of the backward that makes weight gradients, which schedules may put off.

    `attention_work[scenario]`: float64[count, micro_batches]; `sync_s`, `optimizer_s`: float64[stages].
    """

    count: int
    groups: tuple[str, ...]
    forward_base_s: np.ndarray
    forward_slope_s: np.ndarray
    backward_base_s: np.ndarray
    backward_slope_s: np.ndarray
    weight_s: np.ndarray
    attention_work: tuple[np.ndarray, ...]
    sync_s: np.ndarray
    optimizer_s: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """Everything the schedule of one step needs."""

    schedule: str
    vpp: int
    stages: int
    chains: tuple[Chain, ...]
    step_overhead_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """A layout with its kernels' outputs: memory [chains, stages, columns], seconds [chains, slots, 2]
    (`weight` [chains, slots]: see `Chain`), sync, update."""

    model: CostModel
    laid_out: LaidOut
    memory: np.ndarray
    verdict: int
    forward: np.ndarray
    backward: np.ndarray
    weight: np.ndarray
    sync: np.ndarray
    update: np.ndarray

    @property
    def stages(self) -> int:
        return self.laid_out.layout.pp

    @property
    def vpp(self) -> int:
        return self.laid_out.layout.vpp

    @property
    def schedule(self) -> int:
        return self.laid_out.schedule

    def step_seconds(self) -> np.ndarray:
        """Seconds of the step in each scenario."""
        per_scenario = np.empty(self.model.scenarios.count)
        laid_out, scenarios = self.laid_out, self.model.scenarios
        step_seconds(
            self.forward,
            self.backward,
            self.weight,
            self.stages,
            self.vpp,
            self.schedule,
            laid_out.count,
            laid_out.micro_batches,
            laid_out.layout.mbs,
            scenarios.work,
            scenarios.equal_rows,
            self.sync,
            self.update,
            self.model.scalars,
            per_scenario,
        )
        return per_scenario

    def bound_seconds(self) -> float:
        """The admissible bound of this layout (mean over scenarios)."""
        laid_out, scenarios = self.laid_out, self.model.scenarios
        mbs = laid_out.layout.mbs
        micro = int((laid_out.count * laid_out.micro_batches).sum())
        total = np.array([taken_work(row, mbs, micro, scenarios.equal_rows) for row in scenarios.work])
        return float(
            step_bound(
                self.forward,
                self.backward,
                self.stages,
                self.vpp,
                self.schedule,
                laid_out.count,
                laid_out.micro_batches,
                mbs,
                total,
                self.sync,
                self.update,
                self.model.scalars,
            )
        )

    def dealt(self, scenario: int) -> np.ndarray:
        """float64[replicas, micro-batches] attention work, replicas in chain order."""
        laid_out = self.laid_out
        dealt: np.ndarray = dealt_work(
            self.forward,
            self.backward,
            self.stages,
            self.vpp,
            self.schedule,
            laid_out.count,
            laid_out.micro_batches,
            laid_out.layout.mbs,
            self.model.scenarios.work[scenario],
        )
        return dealt


def assemble(model: CostModel, layout: Layout) -> Assembled:
    """Run the stage kernels on one layout: the batch of one."""
    return assemble_laid_out(model, lay_out(model, layout))


def assemble_laid_out(model: CostModel, laid: LaidOut) -> Assembled:
    """Run the stage kernels on a layout whose tables are there already."""
    layout = laid.layout
    chains, stages, span = len(laid.chains), layout.pp, layout.pp * layout.vpp
    memory = np.zeros((chains, stages, MEMORY_COLUMNS))
    verdict = SAFE
    shape = model.architecture.kind_of_layer
    shared = (laid.kinds, laid.points, laid.meshes)
    for stage in range(stages):
        stage_states(
            *shared,
            model.groups,
            model.scalars,
            shape,
            laid.bounds,
            stages,
            layout.vpp,
            laid.schedule,
            laid.point_at,
            laid.point_at,
            laid.zero,
            laid.offload,
            stage,
            memory,
        )
        least = stage_verdict(
            laid.kinds,
            laid.points,
            model.groups,
            model.scalars,
            shape,
            laid.bounds,
            stages,
            layout.vpp,
            laid.schedule,
            laid.point_at,
            laid.micro_batches,
            laid.options,
            stage,
            memory,
        )
        verdict = min(verdict, int(least))
    forward, backward, weight = np.zeros((chains, span, 2)), np.zeros((chains, span, 2)), np.zeros((chains, span))
    operation_seconds(
        *shared,
        model.scalars,
        laid.peers,
        shape,
        laid.bounds,
        stages,
        layout.vpp,
        laid.schedule,
        laid.point_at,
        laid.point_at,
        laid.zero,
        laid.options,
        forward,
        backward,
        weight,
    )
    sync, update = np.zeros((chains, stages, 2)), np.zeros((chains, stages))
    step_ends(
        *shared,
        model.groups,
        model.scalars,
        shape,
        laid.bounds,
        stages,
        layout.vpp,
        laid.schedule,
        laid.point_at,
        laid.point_at,
        laid.zero,
        laid.offload,
        laid.micro_batches,
        forward,
        backward,
        sync,
        update,
    )
    return Assembled(
        model=model,
        laid_out=laid,
        memory=memory,
        verdict=verdict,
        forward=forward,
        backward=backward,
        weight=weight,
        sync=sync,
        update=update,
    )


def ledger(problem: Problem, layout: Layout) -> StepCosts:
    """Step costs of a layout of a normalised problem."""
    return step_costs(assemble(cost_model(problem), layout))


def step_costs(assembled: Assembled) -> StepCosts:
    """Step costs of an assembled layout: the deal of every scenario, written out."""
    layout = assembled.laid_out.layout
    dealt = [assembled.dealt(scenario) for scenario in range(assembled.model.scenarios.count)]
    chains = []
    done = 0
    for index, chain in enumerate(assembled.laid_out.chains):
        groups = tuple(layout.stages[i].parts[part].group for i, part in enumerate(chain.parts))
        chains.append(
            Chain(
                count=chain.count,
                groups=groups,
                forward_base_s=assembled.forward[index, :, 0],
                forward_slope_s=assembled.forward[index, :, 1],
                backward_base_s=assembled.backward[index, :, 0],
                backward_slope_s=assembled.backward[index, :, 1],
                weight_s=assembled.weight[index],
                attention_work=tuple(work[done : done + chain.count, : chain.micro_batches] for work in dealt),
                sync_s=assembled.sync[index, :, 0],
                optimizer_s=assembled.update[index],
            )
        )
        done += chain.count
    return StepCosts(
        schedule=layout.schedule.kind,
        vpp=layout.vpp,
        stages=layout.pp,
        chains=tuple(chains),
        step_overhead_s=float(assembled.model.scalars[col.STEP_OVERHEAD]),
    )
