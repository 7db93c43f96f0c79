"""The stated space counted again, by nested loops over one cell at a time: what a proof log must partition (DESIGN 5).

Families are those that `certificate.space` names; nothing here is taken from the search. A cell is a skeleton: degrees, devices
and shares; ZeRO level, recompute and offload are the variants inside a cell (`variants_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from solver.replay.options import CP_KINDS, Options
from solver.replay.splits import repeats_a_cut
from solver.schedules import get_schedule

UNIFORM, REPLICAS, STAGES = "uniform", "replicas", "stages"


@dataclass(frozen=True, slots=True)
class Cell:
    """One skeleton. `groups` are positions in the cluster (one, or two in rank order), `tp` one degree per group.

    replicas: `dp` and `micro_batches` per group, the latter None while the shares are open. stages: `first_stages` stages and
    `first_layers` layers on the first group, the latter None while the split is open.
    """

    family: str
    groups: tuple[int, ...]
    tp: tuple[int, ...]
    cp: int
    cp_kind: str
    ep: int
    etp: int
    pp: int
    schedule: str
    vpp: int
    mbs: int
    split: str
    rows: int
    dp: int | tuple[int, int]
    micro_batches: int | tuple[int, int] | None
    first_stages: int | None = None
    first_layers: int | None = None

    @property
    def is_open(self) -> bool:
        return self.micro_batches is None or (self.family == STAGES and self.first_layers is None)

    @property
    def parent(self) -> Cell | None:
        """The open cell that this leaf belongs to."""
        if self.family == REPLICAS and self.micro_batches is not None:
            return replace(self, micro_batches=None)
        if self.family == STAGES and self.first_layers is not None:
            return replace(self, first_layers=None)
        return None

    @property
    def pieces(self) -> int:
        """Parts of the pipeline into which the layers are cut."""
        return get_schedule(self.schedule).pieces(self.pp, self.vpp)

    def pieces_of_stages(self) -> list[list[int]]:
        """The parts that each stage holds."""
        schedule = get_schedule(self.schedule)
        return [[schedule.piece(chunk, stage, self.pp) for chunk in range(self.vpp)] for stage in range(self.pp)]

    @property
    def total_dp(self) -> int:
        return sum(self.dp) if isinstance(self.dp, tuple) else self.dp


@dataclass(frozen=True, slots=True)
class Chain:
    """`count` equal pipelines whose first `first` stages sit on the first group, the others on the second."""

    count: int
    first: int
    micro_batches: int


@dataclass(frozen=True, slots=True)
class Variant:
    """A choice inside a cell. `modes` = (option of the other layers, option of the first layers of every stage)."""

    zero: int
    inside_node: bool
    modes: tuple[int, int]


def stated_cells(options: Options) -> list[Cell]:
    """Every cell of the space; those of unlike replicas and unlike stages open. In no particular order."""
    found: list[Cell] = []
    for group in range(len(options.model.networks)):
        found += _uniform(options, (group,))
    free = options.rules.capabilities
    for first, second in options.pairs():
        found += _uniform(options, (first, second))
        if free.unequal_shares and first < second:
            found += _replicas(options, (first, second))
        if free.uneven_layers:
            found += _stages(options, (first, second))
    found = [cell for cell in found if _within_caps(options, cell)]
    found = [cell for cell, legal in zip(found, _legal(options, found), strict=True) if legal]
    return [cell for cell in found if not repeats_a_cut(options, cell)]


def leaves_of(options: Options, cell: Cell) -> Iterator[Cell]:
    """The cells that an open one stands for; a closed one itself."""
    if not cell.is_open:
        yield cell
    elif cell.family == STAGES:
        assert cell.first_stages is not None
        for layers in range(cell.first_stages, options.layers - (cell.pp - cell.first_stages) + 1):
            yield replace(cell, first_layers=layers)
    else:
        assert isinstance(cell.dp, tuple)
        total = cell.rows // cell.mbs
        for one in range(1, total // cell.dp[0] + 1):
            two, rest = divmod(total - one * cell.dp[0], cell.dp[1])
            if rest == 0 and two > 0 and options.runs(cell.schedule, cell.pp, cell.vpp, one, two):
                yield replace(cell, micro_batches=(one, two))


def _uniform(options: Options, groups: tuple[int, ...]) -> Iterator[Cell]:
    devices = sum(options.devices(group) for group in groups)
    for tp, cp in product(options.tp, options.cp):
        for pp in options.depths(devices // (tp * cp)):
            for mbs, dp in product(options.mbs, options.among("dp", list(range(1, devices // (tp * cp * pp) + 1)))):
                rows = next((rows for rows in options.rows if rows % (dp * mbs) == 0), None)
                if rows is None:
                    continue
                micro = rows // (dp * mbs)
                for (schedule, vpp, split), ep, etp, kind in product(
                    options.shapes(pp), options.ep, options.etp, options.cp_kinds(cp)
                ):
                    cell = Cell(
                        UNIFORM, groups, (tp,) * len(groups), cp, kind, ep, etp, pp, schedule, vpp, mbs, split, rows, dp, micro
                    )
                    whole = tp * cp * dp % (ep * etp) == 0 and options.runs(schedule, pp, vpp, micro)
                    if whole and (len(groups) == 1 or _crosses(options, cell)):
                        yield cell


def _crosses(options: Options, cell: Cell) -> bool:
    """Ranks of the first group end inside the layout; a stage on both groups needs collectives and whole expert groups."""
    replica = cell.tp[0] * cell.cp
    if options.devices(cell.groups[0]) % replica:
        return False
    before = options.devices(cell.groups[0]) // replica
    dp = cell.total_dp
    if before == 0 or before >= dp * cell.pp:
        return False
    straddling = before % dp
    if not straddling:
        return True
    whole = all(replica * part % (cell.ep * cell.etp) == 0 for part in (straddling, dp - straddling))
    return whole and options.model.collectives_cross(*cell.groups)


def _replicas(options: Options, groups: tuple[int, int]) -> Iterator[Cell]:
    if not options.model.collectives_cross(*groups) or not options.rows:
        return
    rows = options.rows[0]
    sizes = [options.devices(group) for group in groups]
    for tp, cp, mbs in product(options.tp, options.cp, options.mbs):
        if rows % mbs:
            continue
        for pp in options.depths(min(sizes) // (tp * cp)):
            one, two = (range(1, size // (tp * cp * pp) + 1) for size in sizes)
            dps = [(a, b) for a, b in product(one, two) if options.among("dp", [a + b])]
            for dp, (schedule, vpp, split), ep, etp, kind in product(
                dps, options.shapes(pp), options.ep, options.etp, options.cp_kinds(cp)
            ):
                cell = Cell(REPLICAS, groups, (tp, tp), cp, kind, ep, etp, pp, schedule, vpp, mbs, split, rows, dp, None)
                whole = all(tp * cp * count % (ep * etp) == 0 for count in dp)
                if whole and next(leaves_of(options, cell), None) is not None:
                    yield cell


def _stages(options: Options, groups: tuple[int, int]) -> Iterator[Cell]:
    sizes = [options.devices(group) for group in groups]
    for cp, mbs in product(options.cp, options.mbs):
        for dp in options.among("dp", list(range(1, min(sizes) // cp + 1))):
            rows = next((rows for rows in options.rows if rows % (dp * mbs) == 0), None)
            if rows is None:
                continue
            sides = [[(tp, pp) for tp in options.tp for pp in range(1, size // (cp * dp * tp) + 1)] for size in sizes]
            for (tp_1, pp_1), (tp_2, pp_2) in product(*sides):
                pp = pp_1 + pp_2
                if pp > options.layers or not options.among("pp", [pp]):
                    continue
                if tp_1 != tp_2 and not options.rules.capabilities.per_stage_degrees:
                    continue
                plain = options.plain_schedules(pp)
                for schedule, ep, etp, kind in product(plain, options.ep, options.etp, options.cp_kinds(cp)):
                    if all(tp * cp * dp % (ep * etp) == 0 for tp in (tp_1, tp_2)):
                        micro = rows // (dp * mbs)
                        shape = (cp, kind, ep, etp, pp, schedule, 1, mbs, "balanced", rows, dp, micro, pp_1, None)
                        yield Cell(STAGES, groups, (tp_1, tp_2), *shape)


def chains_of(options: Options, cell: Cell) -> tuple[Chain, ...]:
    """Pipelines of a leaf (or of an open stages cell)."""
    if isinstance(cell.dp, tuple):
        assert isinstance(cell.micro_batches, tuple)
        return Chain(cell.dp[0], cell.pp, cell.micro_batches[0]), Chain(cell.dp[1], 0, cell.micro_batches[1])
    assert isinstance(cell.micro_batches, int)
    if cell.first_stages is not None:
        return (Chain(cell.dp, cell.first_stages, cell.micro_batches),)
    if len(cell.groups) == 1:
        return (Chain(cell.dp, cell.pp, cell.micro_batches),)
    before = options.devices(cell.groups[0]) // (cell.tp[0] * cell.cp)
    full, extra = divmod(before, cell.dp)
    if not extra:
        return (Chain(cell.dp, full, cell.micro_batches),)
    return Chain(extra, full + 1, cell.micro_batches), Chain(cell.dp - extra, full, cell.micro_batches)


def devices_used(options: Options, cell: Cell) -> list[int]:
    """Devices on each of the cell's groups."""
    if isinstance(cell.dp, tuple):
        return [dp * cell.tp[0] * cell.cp * cell.pp for dp in cell.dp]
    used = [0, 0]
    for chain in chains_of(options, cell):
        used[0] += chain.count * chain.first * cell.tp[0] * cell.cp
        used[1] += chain.count * (cell.pp - chain.first) * cell.tp[-1] * cell.cp
    return used[: len(cell.groups)]


def price_per_hour(options: Options, cell: Cell) -> float:
    """Price of the devices in use; infinite where one has none."""
    groups = options.model.problem.cluster.groups
    total = 0.0
    for group, count in zip(cell.groups, devices_used(options, cell), strict=True):
        price = groups[group].price_per_device_hour
        total += count * (np.inf if price is None else price) if count else 0.0
    return total


def _within_caps(options: Options, cell: Cell) -> bool:
    constraints = options.model.problem.constraints
    devices, price = constraints.max_devices, constraints.max_price_per_hour
    if devices is not None and sum(devices_used(options, cell)) > devices:
        return False
    return price is None or price_per_hour(options, cell) <= price


def _legal(options: Options, cells: list[Cell]) -> list[bool]:
    """Legal in the framework on each of the cell's groups at one ZeRO level at least, with the least or the most offload."""
    keep = np.zeros(len(cells), dtype=bool)
    percents = options.offload_percents()
    for zero, percent in product({zero for zero, _ in options.states()}, {percents[0], percents[-1]}):
        keep |= legal_at(options, cells, zero, 1, percent)
    return [bool(flag) for flag in keep]


def legal_at(options: Options, cells: list[Cell], zero: int, replicas: int, offload_percent: int) -> np.ndarray:
    """bool[cells]: the framework accepts the cell with these states."""
    keep = np.ones(len(cells), dtype=bool)
    for slot in (0, -1) if cells else ():
        rows = [_columns(options, cell, cell.tp[slot], zero) for cell in cells]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        columns["optimizer_replicas"] = np.full(len(cells), replicas)
        columns["offload_optimizer_percent"] = np.full(len(cells), offload_percent)
        keep &= options.rules.legal(options.model.problem, columns)
    return keep


def _columns(options: Options, cell: Cell, tp: int, zero: int) -> dict[str, int]:
    return {
        "tp": tp,
        "cp": cell.cp,
        "dp": cell.total_dp,
        "pp": cell.pp,
        "ep": cell.ep,
        "etp": cell.etp,
        "vpp": cell.vpp,
        "schedule": get_schedule(cell.schedule).code,
        "mbs": cell.mbs,
        "micro_batches": cell.micro_batches if isinstance(cell.micro_batches, int) else 4 * cell.pp,
        "zero": zero,
        "sequence_parallel": int(tp > 1 and options.sequence_parallel),
        "cp_kind": CP_KINDS.index(cell.cp_kind),
        "explicit_split": int(
            options.rules.capabilities.uneven_layers == "any" and (cell.split != "even" or options.layers % cell.pieces > 0)
        ),
        "devices": sum(devices_used(options, cell)),
        "step_rows": cell.rows,
    }


def variants_of(options: Options, cell: Cell) -> Iterator[Variant]:
    """Choices inside a leaf; where one rank holds everything all ZeRO levels cost the same, but a framework may refuse some."""
    states = options.states()
    if not _cut_at_nodes(options, cell):
        states = [state for state in states if not state[1]]
    for (zero, inside), modes in product(states, options.modes()):
        yield Variant(zero, inside, modes)


def _cut_at_nodes(options: Options, cell: Cell) -> bool:
    """A shard group may stay inside a node: replicas leave the node on every group, in equal copies unless stages may differ."""
    copies = shard_copies(options, cell)
    alike = len(set(copies)) == 1 or options.rules.capabilities.per_stage_degrees
    return len(chains_of(options, cell)) == 1 and min(copies) > 1 and alike


def shard_copies(options: Options, cell: Cell) -> list[int]:
    """Per group of the cell: copies of the states when shard groups stay inside a node, 1 where they cannot."""
    found = []
    for group, tp in zip(cell.groups, cell.tp, strict=True):
        ranks = cell.cp * cell.total_dp
        inside = max(options.per_node(group) // tp, 1)
        found.append(ranks // inside if ranks > inside > 1 and ranks % inside == 0 else 1)
    return found
