"""Leaf cells priced: every state variant, recompute mixture and optimizer offload that can be the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.balance.batch import Candidates, Prices, price
from solver.balance.batch_kernels import PRUNED
from solver.cost import columns as col
from solver.cost.memory_kernels import FITS, SAFE
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


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """Prices of the candidates `rows` with one offload fraction."""

    rows: np.ndarray
    percent: int
    prices: Prices


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
        """Price with nothing offloaded, and with more as long as more can help.

        More offload only takes bytes from the device and adds seconds to the optimizer step. So larger fractions cannot help a
        candidate that its bound closed, or that fits with the cheap recompute on every layer; and one that does not fit with
        everything offloaded never fits, unless host memory is the limit.
        """
        limit = at_most / weight
        percents = self.grid.offload_percent
        everything = np.arange(len(candidates))
        trials = [self._trial(candidates, everything, percents[0], limit)]
        more = may_offload & self._may_gain(trials[0].prices)
        if len(percents) > 1:
            unfit = np.flatnonzero(more & (trials[0].prices.verdict < self.demand))
            most = self._trial(candidates, unfit, percents[-1], limit)
            trials.append(most)
            more[unfit[(most.prices.verdict < self.demand) & (most.prices.verdict != PRUNED) & ~most.prices.host_over]] = False
            for percent in percents[1:-1]:
                trials.append(self._trial(candidates, np.flatnonzero(more), percent, limit))
                more[trials[-1].rows] = self._may_gain(trials[-1].prices)
            trials.append(self._trial(candidates, np.setdiff1d(np.flatnonzero(more), unfit), percents[-1], limit))
        rows = np.concatenate([trial.rows for trial in trials])
        out = self._variants(trials, cell[rows], state[rows], mode[rows])
        if not self.model.scenarios.equal_rows:
            self._run_schedules(candidates.take(rows), out, weight[rows], at_most)
        return out

    def _trial(self, candidates: Candidates, rows: np.ndarray, percent: int, limit: np.ndarray) -> _Trial:
        """Price `rows` with one offload fraction; an exact price lowers the `limit` of what is tried after it."""
        chosen = candidates.take(rows).with_offload(percent)
        exact = self.model.scenarios.equal_rows
        tables, same_count = self.builder.tables(), self.grid.same_count
        prices = price(self.model, tables, chosen, exact=exact, same_count=same_count, at_most_s=limit[rows])
        limit[rows] = np.minimum(limit[rows], prices.seconds)
        return _Trial(rows, percent, prices)

    def _may_gain(self, prices: Prices) -> np.ndarray:
        """What does not fit yet or recomputes more than it would have to with more bytes free."""
        gains: np.ndarray = (prices.verdict != PRUNED) & ((prices.verdict < self.demand) | prices.raised)
        return gains

    def _variants(self, trials: list[_Trial], cell: np.ndarray, state: np.ndarray, mode: np.ndarray) -> Variants:
        """All trials, one after the other."""
        prices = [trial.prices for trial in trials]
        verdict = np.concatenate([entry.verdict for entry in prices])
        bound_s = np.concatenate([entry.bound_s for entry in prices])
        return Variants(
            cell=cell,
            state=state,
            mode=mode,
            offload_percent=np.repeat([trial.percent for trial in trials], [len(trial.rows) for trial in trials]),
            verdict=verdict,
            bound_s=bound_s,
            seconds=np.concatenate([entry.seconds for entry in prices]),
            headroom_bytes=np.concatenate([entry.headroom_bytes for entry in prices]),
            closed_s=np.where((verdict >= self.demand) | (verdict == PRUNED), bound_s, np.inf),
        )

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
