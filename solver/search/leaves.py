"""Leaf cells priced: every state variant and recompute mixture, the least optimizer offload that fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.cost import columns as col
from solver.cost.batch import Candidates, price
from solver.cost.batch_kernels import PRUNED
from solver.cost.memory_kernels import FITS, SAFE, UNFIT
from solver.cost.table import CostModel
from solver.frameworks import RuleSet
from solver.search.cells import Cells
from solver.search.grid import Grid
from solver.search.legality import legal_variants
from solver.search.tables import TableBuilder

EXACT_BLOCK = 64
"""candidates priced by the schedule at a time when rows differ, cheapest bound first"""
STATES_PER_BLOCK = 40_000


@dataclass(frozen=True, slots=True, eq=False)
class Variants:
    """Priced candidates: the cell and the choice of each, its verdict, bound and seconds (inf where not needed)."""

    cell: np.ndarray
    state: np.ndarray
    mode: np.ndarray
    offload_percent: np.ndarray
    verdict: np.ndarray
    bound_s: np.ndarray
    seconds: np.ndarray
    headroom_bytes: np.ndarray


class LeafPricer:
    """Prices leaf cells of one search."""

    def __init__(self, model: CostModel, rules: RuleSet, grid: Grid, builder: TableBuilder) -> None:
        self.model = model
        self.rules = rules
        self.grid = grid
        self.builder = builder
        self.demand = SAFE if model.scalars[col.DEMAND_SAFE] > 0 else FITS

    @property
    def layouts_per_leaf(self) -> int:
        """Choices inside a leaf: states x recompute mixtures x offload (counts of recomputed layers follow from memory)."""
        return len(self.grid.states) * len(self.grid.modes) * len(self.grid.offload_percent)

    def price(self, cells: Cells, weight: np.ndarray, at_most: float) -> Variants:
        """All variants of `cells`; exact seconds for those that fit as demanded and may cost less than `at_most` (a value)."""
        cell, state, mode = self._choices(cells)
        chosen = cells.take(cell)
        zero = np.array([variant.zero for variant in self.grid.states])[state]
        zero = np.where(chosen.cp[:, 0] * chosen.total_dp == 1, 0, zero)
        inside = np.array([variant.inside_node for variant in self.grid.states])[state]
        low, high = np.array(self.grid.modes)[mode].T
        candidates = self.builder.candidates(chosen, zero=zero, inside_node=inside, low=low, high=high)
        may_offload = self._legal(cells, self.grid.offload_percent[-1])[cell, state]
        return self._ladder(candidates, cell, state, mode, weight[cell], at_most, may_offload)

    def _choices(self, cells: Cells) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cell, state and mode of every variant that is distinct and legal."""
        states, modes = len(self.grid.states), len(self.grid.modes)
        cell = np.repeat(np.arange(len(cells)), states * modes)
        state = np.tile(np.repeat(np.arange(states), modes), len(cells))
        mode = np.tile(np.arange(modes), len(cells) * states)
        keep = (self._distinct(cells) & self._legal(cells, self.grid.offload_percent[0]))[cell, state]
        return cell[keep], state[keep], mode[keep]

    def _legal(self, cells: Cells, offload_percent: int) -> np.ndarray:
        """bool[cells, states]: what the framework accepts."""
        keep = np.ones((len(cells), len(self.grid.states)), dtype=bool)
        for index, variant in enumerate(self.grid.states):
            copies = np.ones(len(cells), dtype=np.int64)
            if variant.inside_node and variant.zero > 0:
                copies = self.builder.copies(cells.group[:, 0], cells.tp[:, 0], cells.cp[:, 0] * cells.total_dp)
            keep[:, index] = legal_variants(self.rules, self.model, self.grid, cells, variant, copies, offload_percent)
        return keep

    def _distinct(self, cells: Cells) -> np.ndarray:
        """bool[cells, states]: sharding needs ranks to share with, HSDP a group that spans nodes on every slot."""
        ranks = cells.cp[:, 0] * cells.total_dp
        keep = np.ones((len(cells), len(self.grid.states)), dtype=bool)
        single = ranks == 1
        lowest = min(variant.zero for variant in self.grid.states)
        spans = np.ones(len(cells), dtype=bool)
        for slot in range(2):
            spans &= self.builder.copies(cells.group[:, slot], cells.tp[:, slot], cells.cp[:, slot] * cells.total_dp) > 1
        spans &= cells.chains == 1
        for index, variant in enumerate(self.grid.states):
            keep[:, index] &= ~single | (variant.zero == lowest)
            if variant.inside_node:
                keep[:, index] &= spans
        return keep

    def _ladder(
        self,
        candidates: Candidates,
        cell: np.ndarray,
        state: np.ndarray,
        mode: np.ndarray,
        weight: np.ndarray,
        at_most: float,
        may_offload: np.ndarray,
    ) -> Variants:
        """Price with nothing offloaded; what does not fit is tried with everything, then with the fractions between.

        More offload only takes bytes from the device and adds seconds to the optimizer step: what does not fit with everything
        offloaded never fits (unless host memory is the limit), and the least fraction that fits is the best.
        """
        size = len(candidates)
        out = Variants(
            cell=cell,
            state=state,
            mode=mode,
            offload_percent=np.zeros(size, dtype=np.int64),
            verdict=np.zeros(size, dtype=np.int64),
            bound_s=np.full(size, np.inf),
            seconds=np.full(size, np.inf),
            headroom_bytes=np.full(size, -np.inf),
        )
        self._host_bound = np.zeros(size, dtype=bool)
        limit = at_most / weight
        percents = self.grid.offload_percent
        left = self._try(candidates, out, np.arange(size), percents[0], limit)
        left = left[may_offload[left]]
        if len(percents) > 1:
            most = self._try(candidates, out, left, percents[-1], limit)
            # what fits with most offloaded may fit with less; what fails there only because of host memory too
            again = np.setdiff1d(left, most[~self._host_bound[most]])
            again = again[out.verdict[again] != PRUNED]
            for percent in percents[1:-1]:
                again = self._try(candidates, out, again, percent, limit, replace_any=True)
        if not self.model.scenarios.equal_rows:
            self._run_schedules(candidates, out, weight, at_most)
        return out

    def _try(
        self, candidates: Candidates, out: Variants, rows: np.ndarray, percent: int, limit: np.ndarray, replace_any: bool = False
    ) -> np.ndarray:
        """Price `rows` with one offload fraction; the rows that still do not fit as demanded."""
        if not len(rows):
            return rows
        trial = candidates.take(rows).with_offload(percent)
        exact = self.model.scenarios.equal_rows
        prices = price(
            self.model, self.builder.tables(), trial, exact=exact, same_count=self.grid.same_count, at_most_s=limit[rows]
        )
        fits = prices.verdict >= self.demand
        better = fits | (prices.verdict > out.verdict[rows]) if replace_any else prices.verdict > out.verdict[rows]
        pruned = (prices.verdict == PRUNED) & (out.verdict[rows] == UNFIT)
        chosen = better | pruned
        out.offload_percent[rows[chosen]] = percent
        out.verdict[rows[chosen]] = prices.verdict[chosen]
        out.bound_s[rows[chosen]] = prices.bound_s[chosen]
        out.seconds[rows[chosen]] = prices.seconds[chosen]
        out.headroom_bytes[rows[chosen]] = prices.headroom_bytes[chosen]
        self._host_bound[rows] = prices.host_over
        left: np.ndarray = rows[~fits & ~pruned]
        return left

    def _run_schedules(self, candidates: Candidates, out: Variants, weight: np.ndarray, at_most: float) -> None:
        """Exact prices where rows differ, cheapest bound first, until no bound is below the best price."""
        value = out.bound_s * weight
        fits = np.flatnonzero(out.verdict >= self.demand)
        order = fits[np.argsort(value[fits], kind="stable")]
        for start in range(0, len(order), EXACT_BLOCK):
            block = order[start : start + EXACT_BLOCK]
            block = block[value[block] < at_most]
            if not len(block):
                break
            seconds = self.exact(candidates, out, block)
            out.seconds[block] = seconds
            at_most = min(at_most, float((seconds * weight[block]).min()))

    def exact(self, candidates: Candidates, out: Variants, rows: np.ndarray) -> np.ndarray:
        """Seconds of the chosen variants by their schedules."""
        seconds = np.empty(len(rows))
        tables = self.builder.tables()
        for percent in np.unique(out.offload_percent[rows]):
            same = out.offload_percent[rows] == percent
            trial = candidates.take(rows[same]).with_offload(int(percent))
            prices = price(self.model, tables, trial, exact=True, same_count=self.grid.same_count)
            seconds[same] = prices.seconds
        return seconds
