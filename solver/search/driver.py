"""Best-first branch and bound over the cells of the stated space.

A cell is closed by an admissible bound that is not below the incumbent, by proven infeasibility of all its layouts, or by pricing
everything in it (DESIGN 5). Open cells that remain when the search stops count into the lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from solver.bounds import SkeletonBounds, skeleton_bounds
from solver.bounds import average_bounds as bounds_of_averages
from solver.cost.table import CostModel
from solver.plan import Progress
from solver.search.cells import REPLICAS, STAGES, UNIFORM, Cells
from solver.search.frontier import Frontier
from solver.search.grid import Grid
from solver.search.leaves import LeafPricer, Variants
from solver.search.pairs import split_layers, split_shares
from solver.search.space import StatedSpace, hourly_price
from solver.search.tables import TableBuilder

FIRST_BLOCK = 64
LARGEST_BLOCK = 2048
SPLIT_BLOCK = 512
EXHAUST_CELLS = 1500
"""uniform cells up to this number are all priced, not only those below the incumbent"""
SEED_EVERY = 4
SEED_ROUNDS = 6
SEED_CELLS = 256
"""while a large space is laid out, up to so many rounds of so many cells are priced after every few blocks"""
CLOSE = 1.0 - 1e-9
"""relative slack for rounding when a bound closes a cell"""
POOL = 512
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A priced layout: its cell (one row), choices, seconds and objective value."""

    cell: Cells
    state: int
    mode: int
    offload_percent: int
    seconds: float
    value: float
    verdict: int
    headroom_bytes: float
    cost: float = 0.0


@dataclass(slots=True, eq=False)
class Tally:
    """How leaves were closed, in leaves."""

    bound: int = 0
    infeasible: int = 0
    evaluated: int = 0
    open: int = 0


@dataclass(slots=True, eq=False)
class SearchState:
    """Outcome of a search: incumbents by value, risky ones that only fit, tally, least open bound, why it stopped."""

    tally: Tally
    pool: list[Found] = field(default_factory=list)
    risky: list[Found] = field(default_factory=list)
    front: list[Found] = field(default_factory=list)
    lower_bound: float = np.inf
    stopped_by: str = "proof"
    proof: list[tuple[Cells, str, np.ndarray]] = field(default_factory=list)

    @property
    def best(self) -> Found | None:
        return self.pool[0] if self.pool else None


class Driver:
    """One search over one stated space."""

    def __init__(
        self,
        model: CostModel,
        grid: Grid,
        builder: TableBuilder,
        pricer: LeafPricer,
        space: StatedSpace,
        *,
        should_stop: Callable[[], bool],
        on_progress: Callable[[Progress], None],
        keep_proof: bool,
        on_incumbent: Callable[[Found], None],
    ) -> None:
        self.model = model
        self.grid = grid
        self.builder = builder
        self.pricer = pricer
        self.space = space
        self.should_stop = should_stop
        self.on_progress = on_progress
        self.keep_proof = keep_proof
        self.on_incumbent = on_incumbent
        self.told: Found | None = None
        self.state = SearchState(tally=Tally())
        search = model.problem.search
        self.target_gap = search.target_gap
        self.exhaust = False
        self.later_bound = 0.0
        self.work_limit = search.work_limit
        self.longest_s = model.problem.constraints.max_step_time_s or np.inf

    def run(self) -> SearchState:
        """Search until the proof, the target gap, the work limit or the caller's stop."""
        first, later = Frontier(), Frontier()
        uniform_cells = sum(int((block.family == UNIFORM).sum()) for block in self.space.blocks)
        forced = self.model.problem.search.force == "bounds"
        exhausts = not forced and uniform_cells <= EXHAUST_CELLS and self.work_limit is None
        for index, block in enumerate(self.space.blocks):
            uniform = (block.family == UNIFORM) & (not forced)
            if exhausts:
                self._exhaust(block.take(uniform))
                block, uniform = block.take(~uniform), uniform[~uniform]
            bounds = self._first_bounds(block, index)
            self._push(first, block.take(uniform), bounds[uniform])
            self._push(later, block.take(~uniform), bounds[~uniform])
            if index % SEED_EVERY == 0 and len(self.space.blocks) > 1:
                self._seed(first, later)
        self.later_bound = later.least()
        self._drain(first)
        self.later_bound = np.inf
        later.absorb(first)
        self._drain(later)
        self._report(self._close(later))
        return self.state

    def _first_bounds(self, block: Cells, index: int) -> np.ndarray:
        """Bounds of a block, the cheap one where it closes a cell; blocks that a stop leaves over have the trivial bound."""
        bounds = np.zeros(len(block))
        if index and self.should_stop():
            return bounds
        bounds = self.average_bounds(block) if self.state.best else bounds
        best = self.state.best
        left = np.flatnonzero(bounds < (best.value * CLOSE if best else np.inf))
        bounds[left] = self._bounds(block.take(left))
        return bounds

    def average_bounds(self, cells: Cells) -> np.ndarray:
        """Bounds of cells with one mesh on one group that deal every row once, 0 for the others."""
        bounds = np.zeros(len(cells))
        plain = (cells.family == UNIFORM) & (cells.group[:, 0] == cells.group[:, 1]) & (cells.rows == self.model.scenarios.rows)
        if plain.any():
            chosen = cells.take(plain)
            points = self.builder.points_of(chosen)[:, 0]
            seconds = bounds_of_averages(self.model, self.builder.tables(), points, chosen.stages, chosen.micro[:, 0])
            bounds[plain] = seconds * self.weight(chosen)
        return bounds

    def _seed(self, first: Frontier, later: Frontier) -> None:
        """Price the most promising cells so far: an early incumbent closes most of a large space as it is laid out."""
        if self.work_limit is not None or self.keep_proof:
            return
        frontier = first if first.parts else later
        for _ in range(SEED_ROUNDS):
            block, bounds = frontier.pop(SEED_CELLS, self._cutoff())
            if block is None:
                break
            if self._stopped():
                frontier.push(block, bounds)
                return
            self._visit(block, bounds, frontier)
            if self.state.best:
                break
        if self.state.best:
            for waiting in (first, later):
                for cells, _ in waiting.close(self.state.best.value * CLOSE):
                    self.state.tally.bound += int(cells.leaves.sum())
        self._report(first)

    def _exhaust(self, cells: Cells) -> None:
        """Price every layout of a small uniform space: its Pareto points are then exact."""
        self.exhaust = True
        for start in range(0, len(cells), LARGEST_BLOCK):
            block = cells.take(np.arange(start, min(start + LARGEST_BLOCK, len(cells))))
            self._price(block)
        self.exhaust = False

    def _drain(self, frontier: Frontier) -> None:
        """Visit cells best first until none is below the cutoff. Uniform cells come first and seed the incumbent."""
        size = FIRST_BLOCK
        while True:
            cutoff = self._cutoff()
            block, bounds = frontier.pop(min(size, self._work_left()), cutoff)
            if block is None:
                break
            if self._stopped():
                frontier.push(block, bounds)
                break
            self._visit(block, bounds, frontier)
            size = min(LARGEST_BLOCK, size * 2)
            self._report(frontier)

    # ------------------------------------------------------------------------------------------------------------- objective
    def weight(self, cells: Cells) -> np.ndarray:
        """Objective = seconds x weight: 1 for the step time, the price of the devices in use per second for cost."""
        if self.model.problem.objective.kind == "cost":
            return hourly_price(self.model, cells) / SECONDS_PER_HOUR
        return np.ones(len(cells))

    def _cutoff(self) -> float:
        best = self.state.best
        by_time = self.longest_s if self.model.problem.objective.kind == "step_time" else np.inf
        if best is None:
            return by_time
        return min(by_time, best.value * min(CLOSE, 1.0 - self.target_gap))

    def _bounds(self, cells: Cells) -> np.ndarray:
        zero = np.zeros(len(cells), dtype=np.int64)
        candidates = self.builder.candidates(cells, zero=zero, inside_node=zero > 0, low=zero, high=zero)
        open_split = (cells.family == STAGES) & (cells.level == 0)
        parts = SkeletonBounds(
            shares_open=(cells.family == REPLICAS) & (cells.level == 0),
            first_stages=np.where(open_split, cells.first_count[:, 0], 0),
            rows=cells.rows,
        )
        return np.asarray(skeleton_bounds(self.model, self.builder.tables(), candidates, parts) * self.weight(cells))

    # ---------------------------------------------------------------------------------------------------------------- visits
    def _visit(self, block: Cells, bounds: np.ndarray, frontier: Frontier) -> None:
        leaf = block.level == 1
        opened = np.flatnonzero(~leaf)
        if leaf.any():
            self._price(block.take(leaf))
        # coarse cells that do not get split in this round go back
        if len(opened) > SPLIT_BLOCK:
            frontier.push(block.take(opened[SPLIT_BLOCK:]), bounds[opened[SPLIT_BLOCK:]])
            opened = opened[:SPLIT_BLOCK]
        if len(opened):
            self._split(block.take(opened), bounds[opened], frontier)

    def _split(self, cells: Cells, bounds: np.ndarray, frontier: Frontier) -> None:
        for family in (REPLICAS, STAGES):
            mine = cells.family == family
            if not mine.any():
                continue
            chosen = cells.take(mine)
            children, parent = (
                split_shares(chosen, self.grid) if family == REPLICAS else split_layers(chosen, self.model.architecture.layers)
            )
            self._push(frontier, children, np.maximum(self._bounds(children), bounds[mine][parent]))

    def _push(self, frontier: Frontier, cells: Cells, bounds: np.ndarray) -> None:
        """Close at once what is not below the incumbent; the rest waits."""
        best = self.state.best
        by_bound = bounds >= (best.value * CLOSE if best else np.inf)
        self.state.tally.bound += int(cells.leaves[by_bound].sum())
        if self.keep_proof:
            self._log(cells.take(by_bound), np.full(int(by_bound.sum()), "bound"), bounds[by_bound])
        frontier.push(cells.take(~by_bound), bounds[~by_bound])

    def _price(self, cells: Cells) -> None:
        best = self.state.best
        weight = self.weight(cells)
        variants = self.pricer.price(cells, weight, best.value if best and not self.exhaust else np.inf)
        self._keep(cells, variants, weight)
        self._tally(cells, variants, weight)

    def _tally(self, cells: Cells, variants: Variants, weight: np.ndarray) -> None:
        """Count how each priced leaf was closed: by its least exact price, by a bound below that, or because nothing fits."""
        exact = (variants.verdict >= self.pricer.demand) & np.isfinite(variants.seconds)
        priced = np.full(len(cells), np.inf)
        np.minimum.at(priced, variants.cell[exact], variants.seconds[exact])
        least = priced.copy()
        np.minimum.at(least, variants.cell[~exact], variants.closed_s[~exact])
        infeasible = ~np.isfinite(least)
        evaluated = (priced <= least) & ~infeasible
        self.state.tally.evaluated += int(evaluated.sum())
        self.state.tally.infeasible += int(infeasible.sum())
        self.state.tally.bound += int((~evaluated & ~infeasible).sum())
        if self.keep_proof:
            how = np.where(evaluated, "evaluated", np.where(infeasible, "infeasible", "bound"))
            self._log(cells, how, least * weight)

    def _log(self, cells: Cells, how: np.ndarray, value: np.ndarray) -> None:
        """Append to the proof, one cell at a time."""
        for index in range(len(cells)):
            self.state.proof.append((cells.take(np.array([index])), str(how[index]), value[index : index + 1]))

    def _keep(self, cells: Cells, variants: Variants, weight: np.ndarray) -> None:
        """Merge the best priced variants into the pool, and what only fits into the risky list."""
        good = np.flatnonzero((variants.verdict >= self.pricer.demand) & (variants.seconds <= self.longest_s))
        self.state.pool = self._merged(self.state.pool, cells, variants, weight, good, variants.seconds)
        self._keep_front(cells, variants, weight, good)
        risky = np.flatnonzero((variants.verdict > 0) & (variants.verdict < self.pricer.demand))
        self.state.risky = self._merged(self.state.risky, cells, variants, weight, risky, variants.bound_s)

    def _keep_front(self, cells: Cells, variants: Variants, weight: np.ndarray, rows: np.ndarray) -> None:
        """Keep what is undominated in seconds, money (or devices) and headroom; few layouts are, so one sweep is enough."""
        rows = rows[np.isfinite(variants.seconds[rows])]
        price = hourly_price(self.model, cells)
        money = np.where(np.isfinite(price), price, cells.devices.sum(axis=1))[variants.cell[rows]] * variants.seconds[rows]
        entries: list[tuple[float, float, float, Found | None, int]] = [
            (found.seconds, found.cost, -found.headroom_bytes, found, -1) for found in self.state.front
        ]
        for row, spent in zip(rows, money, strict=True):
            entries.append((float(variants.seconds[row]), float(spent), -float(variants.headroom_bytes[row]), None, int(row)))
        entries.sort(key=lambda entry: entry[:3])
        kept: list[tuple[float, float, float, Found | None, int]] = []
        for entry in entries:
            if all(entry[1] < other[1] or entry[2] < other[2] for other in kept):
                kept.append(entry)
        self.state.front = [entry[3] or self._found(cells, variants, weight, entry[4], entry[0], entry[1]) for entry in kept]

    def _found(self, cells: Cells, variants: Variants, weight: np.ndarray, row: int, seconds: float, cost: float) -> Found:
        cell = int(variants.cell[row])
        return Found(
            cell=cells.take(np.array([cell])),
            state=int(variants.state[row]),
            mode=int(variants.mode[row]),
            offload_percent=int(variants.offload_percent[row]),
            seconds=seconds,
            value=seconds * float(weight[cell]),
            verdict=int(variants.verdict[row]),
            headroom_bytes=float(variants.headroom_bytes[row]),
            cost=cost,
        )

    def _merged(
        self, pool: list[Found], cells: Cells, variants: Variants, weight: np.ndarray, rows: np.ndarray, seconds: np.ndarray
    ) -> list[Found]:
        rows = rows[np.isfinite(seconds[rows])]
        value = seconds[rows] * weight[variants.cell[rows]]
        if len(pool) >= POOL:
            rows, value = rows[value < pool[-1].value], value[value < pool[-1].value]
        order = np.argsort(value, kind="stable")[:POOL]
        fresh = [self._found(cells, variants, weight, int(row), float(seconds[row]), 0.0) for row in rows[order]]
        return sorted([*pool, *fresh], key=lambda found: found.value)[:POOL]

    # ----------------------------------------------------------------------------------------------------------------- limits
    def _stopped(self) -> bool:
        if self.work_limit is not None and self._closed() >= self.work_limit:
            self.state.stopped_by = "work"
            return True
        if self.should_stop():
            self.state.stopped_by = "time"
            return True
        return False

    def _closed(self) -> int:
        """Leaves closed so far, however."""
        tally = self.state.tally
        return tally.evaluated + tally.infeasible + tally.bound

    def _work_left(self) -> int:
        """Cells that may still be closed under the work limit, at least one."""
        return LARGEST_BLOCK if self.work_limit is None else max(1, self.work_limit - self._closed())

    def _close(self, frontier: Frontier) -> Frontier:
        """What is left in the frontier is closed by its bound, or stays open when the search was stopped or met its target."""
        best = self.state.best
        cells, bounds = frontier.rest()
        proven = best.value * CLOSE if best else self._cutoff()
        by_bound = bounds >= proven
        self.state.tally.bound += int(cells.leaves[by_bound].sum())
        self.state.tally.open = int(cells.leaves[~by_bound].sum())
        least_open = float(bounds[~by_bound].min()) if (~by_bound).any() else np.inf
        self.state.lower_bound = min(least_open, best.value if best else np.inf)
        if self.state.stopped_by == "proof" and self.state.tally.open:
            self.state.stopped_by = "target_gap"
        if self.keep_proof:
            self._log(cells, np.where(by_bound, "bound", "open"), bounds)
        still = Frontier()
        still.push(cells.take(~by_bound), bounds[~by_bound])
        return still

    def _report(self, frontier: Frontier) -> None:
        best = self.state.best
        bound = min(frontier.least(), self.later_bound)
        value = best.value if best else None
        known = bound > 0.0 and (value is not None or np.isfinite(bound))
        lowest = (bound if value is None else min(bound, value)) if known else None
        gap = (value - lowest) / value if value and lowest is not None else None
        if best is not None and best is not self.told:
            self.told = best
            self.on_incumbent(best)
        done = self._closed() + frontier.leaves_at_least(self._cutoff())
        self.on_progress(Progress(done=done, total=self.space.leaves, incumbent=value, bound=lowest, gap=gap))
