"""One search from problem to priced pool: the pieces, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solver.certify import certify
from solver.cost.table import CostModel
from solver.evaluate import Evaluator
from solver.frameworks import RuleSet, get_rule_set
from solver.layout import Layout
from solver.plan import Plan, Progress
from solver.problem import Problem
from solver.search.driver import Driver, Found, SearchState
from solver.search.grid import Grid, option_grid
from solver.search.layouts import layout_of
from solver.search.leaves import LeafPricer
from solver.search.space import StatedSpace, stated_space
from solver.search.tables import TableBuilder

PRICE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """Everything one search works on; `problem` is normalised."""

    problem: Problem
    evaluator: Evaluator
    rules: RuleSet
    grid: Grid
    builder: TableBuilder
    pricer: LeafPricer
    space: StatedSpace

    @property
    def model(self) -> CostModel:
        return self.evaluator.model

    def run(
        self,
        should_stop: Callable[[], bool],
        on_progress: Callable[[Progress], None],
        on_incumbent: Callable[[float, Callable[[], Layout]], None] = lambda value, layout: None,
    ) -> SearchState:
        """Search the stated space; `on_incumbent` gets each new best value, and its layout when it asks."""
        return self.driver(should_stop, on_progress, lambda found: on_incumbent(found.value, lambda: self.layout(found))).run()

    def driver(
        self,
        should_stop: Callable[[], bool],
        on_progress: Callable[[Progress], None],
        on_incumbent: Callable[[Found], None] = lambda found: None,
    ) -> Driver:
        """One search over the stated space, not yet run."""
        return Driver(
            self.model,
            self.grid,
            self.builder,
            self.pricer,
            self.space,
            should_stop=should_stop,
            on_progress=on_progress,
            keep_proof=self.problem.search.proof,
            on_incumbent=on_incumbent,
        )

    def layout(self, found: Found) -> Layout:
        """The layout document of a priced variant."""
        return layout_of(self.model, self.grid, self.builder, found.cell, found.state, found.mode, found.offload_percent)

    def certified_plan(self, found: Found) -> Plan:
        """The plan of a priced variant, re-checked; the scalar evaluation must give the same price."""
        plan = self.evaluator.plan(self.layout(found))
        exact = plan.prediction.step_time_s
        if found.verdict >= self.pricer.demand:
            assert abs(exact - found.seconds) <= PRICE_TOLERANCE * exact, (exact, found.seconds)
        certify(self.problem, plan)
        return plan


def open_session(problem: Problem, should_stop: Callable[[], bool] = lambda: False) -> Session:
    """Compile a normalised problem and count its space; raises InvalidProblem when it is refused, Stopped when told to stop."""
    evaluator = Evaluator(problem)
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    grid = option_grid(evaluator.model, rules)
    builder = TableBuilder(evaluator.model, sequence_parallel=grid.sequence_parallel[0])
    pricer = LeafPricer(evaluator.model, rules, grid, builder)
    space = stated_space(evaluator.model, rules, grid, builder, pricer.layouts_per_leaf, should_stop)
    return Session(problem=problem, evaluator=evaluator, rules=rules, grid=grid, builder=builder, pricer=pricer, space=space)
