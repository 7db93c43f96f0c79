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
    """Priced candidates: the cell and the choice of each, its verdict, bound and seconds (inf where not needed).

    `closed_s`: seconds that nothing which fits as demanded can undercut under this choice, inf once nothing can fit.
    """

    cell: np.ndarray
    state: np.ndarray
    mode: np.ndarray
    offload_percent: np.ndarray
    verdict: np.ndarray
    bound_s: np.ndarray
    seconds: np.ndarray
    headroom_bytes: np.ndarray
    closed_s: np.ndarray


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
        legal = self._legal(cells, self.grid.offload_percent[0]) & self._distinct(cells)
        may_offload = legal & self._legal(cells, self.grid.offload_percent[-1])
        cell, state, mode = self._choices(cells, self._least_where_alone(cells, legal, may_offload))
        chosen = cells.take(cell)
        zero = np.array([variant.zero for variant in self.grid.states])[state]
        zero = np.where(chosen.cp[:, 0] * chosen.total_dp == 1, 0, zero)
        inside = np.array([variant.inside_node for variant in self.grid.states])[state]
        low, high = np.array(self.grid.modes)[mode].T
        candidates = self.builder.candidates(chosen, zero=zero, inside_node=inside, low=low, high=high)
        return self._ladder(candidates, cell, state, mode, weight[cell], at_most, may_offload[cell, state])

    def _choices(self, cells: Cells, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cell, state and mode of every variant in `legal[cells, states]`."""
        states, modes = len(self.grid.states), len(self.grid.modes)
        cell = np.repeat(np.arange(len(cells)), states * modes)
        state = np.tile(np.repeat(np.arange(states), modes), len(cells))
        mode = np.tile(np.arange(modes), len(cells) * states)
        keep = legal[cell, state]
        return cell[keep], state[keep], mode[keep]

    def _legal(self, cells: Cells, offload_percent: int) -> np.ndarray:
        """bool[cells, states]: what the framework accepts."""
        keep = np.ones((len(cells), len(self.grid.states)), dtype=bool)
        for index, variant in enumerate(self.grid.states):
            copies = np.ones((len(cells), 2), dtype=np.int64)
            if variant.inside_node and variant.zero > 0:
                copies = self.builder.slot_copies(cells)
            keep[:, index] = legal_variants(self.rules, self.model, self.grid, cells, variant, copies, offload_percent)
        return keep

    def _distinct(self, cells: Cells) -> np.ndarray:
        """bool[cells, states]: HSDP needs groups that span nodes on every slot, in equal copies where stages must be alike."""
        copies = self.builder.slot_copies(cells)
        spans = (copies > 1).all(axis=1) & (cells.chains == 1)
        if not self.rules.capabilities.per_stage_degrees:
            spans &= copies[:, 0] == copies[:, 1]
        inside = np.array([variant.inside_node for variant in self.grid.states])
        keep: np.ndarray = ~inside[None, :] | spans[:, None]
        return keep

    def _least_where_alone(self, cells: Cells, legal: np.ndarray, may_offload: np.ndarray) -> np.ndarray:
        """Where one rank holds all, ZeRO levels differ in legality alone: the lowest legal one, and that which may offload."""
        alone = cells.cp[:, 0] * cells.total_dp == 1
        least = np.zeros_like(legal)
        rows = np.arange(len(cells))
        by_level = np.argsort([variant.zero for variant in self.grid.states], kind="stable")
        for choices in (legal, may_offload):
            first = by_level[np.argmax(choices[:, by_level], axis=1)]
            least[rows, first] |= choices[rows, first]
        keep: np.ndarray = np.where(alone[:, None], least, legal)
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
            closed_s=np.full(size, np.inf),
        )
        limit = at_most / weight
        percents = self.grid.offload_percent
        left, _ = self._try(candidates, out, np.arange(size), percents[0], limit)
        left = left[may_offload[left]]
        if len(percents) > 1:
            most, by_host = self._try(candidates, out, left, percents[-1], limit)
            # what fits or is too slow with most offloaded may do with less; what fails there only because of host memory too
            again = np.setdiff1d(left, most[~by_host])
            for percent in percents[1:-1]:
                again, _ = self._try(candidates, out, again, percent, limit)
        if not self.model.scenarios.equal_rows:
            self._run_schedules(candidates, out, weight, at_most)
        return out

    def _try(
        self, candidates: Candidates, out: Variants, rows: np.ndarray, percent: int, limit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Price `rows` with one offload fraction; (the rows that do not fit as demanded, whether host memory is why).

        A row that fits, or that its bound closes, replaces what larger fractions gave: they only cost more.
        """
        if not len(rows):
            return rows, np.zeros(0, dtype=bool)
        trial = candidates.take(rows).with_offload(percent)
        exact = self.model.scenarios.equal_rows
        prices = price(
            self.model, self.builder.tables(), trial, exact=exact, same_count=self.grid.same_count, at_most_s=limit[rows]
        )
        fits = prices.verdict >= self.demand
        pruned = prices.verdict == PRUNED
        chosen = fits | (prices.verdict > out.verdict[rows]) | (pruned & (out.verdict[rows] == UNFIT))
        out.closed_s[rows[fits | pruned]] = prices.bound_s[fits | pruned]
        out.offload_percent[rows[chosen]] = percent
        out.verdict[rows[chosen]] = prices.verdict[chosen]
        out.bound_s[rows[chosen]] = prices.bound_s[chosen]
        out.seconds[rows[chosen]] = prices.seconds[chosen]
        out.headroom_bytes[rows[chosen]] = prices.headroom_bytes[chosen]
        unfit = ~fits & ~pruned
        return rows[unfit], prices.host_over[unfit]

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
