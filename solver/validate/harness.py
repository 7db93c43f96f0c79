"""Many cases priced together: as `solver.evaluate` prices one, with operators tabulated once per set of cases that share them.

Cases that differ only in batch and number of nodes share their cost tables (`Case.sharing_key`); their layouts then run through
the same kernels as an evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.balance.ledger import Assembled, assemble, assemble_laid_out
from solver.cost.laid_out import LaidOut, lay_out_with, points_of
from solver.cost.scenarios import ScenarioSet, scenario_set
from solver.cost.table import CostModel, MeshShape, cost_model
from solver.validate.cases import Case
from solver.validate.constants import SHIPPED, Constants


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Cases of one sharing key, the representative with most nodes, and what of them does not hang on constants.

    `slots[i]` is the row of case i in the tables of distinct (point, mesh) pairs.
    """

    cases: tuple[int, ...]
    representative: int
    entries: tuple[int, ...]
    slots: tuple[int, ...]
    mesh: MeshShape


class Harness:
    """Cases by index; `predict` returns seconds per case, `assembled` all of one."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self.scenarios: list[ScenarioSet] = [scenario_set(case.problem) for case in self.cases]
        self.sets: list[Shared] = []
        self.alone: list[int] = []
        self._laid: dict[int, LaidOut] = {}
        by_key: dict[str, list[int]] = {}
        for index, case in enumerate(self.cases):
            if len(case.problem.cluster.groups) > 1:
                self.alone.append(index)
            else:
                by_key.setdefault(case.sharing_key, []).append(index)
        self.sets = [self._shared(indices) for indices in by_key.values()]
        self.set_of = {index: position for position, shared in enumerate(self.sets) for index in shared.cases}

    def _shared(self, indices: list[int]) -> Shared:
        nodes = [self.cases[index].problem.cluster.groups[0].nodes for index in indices]
        keys: dict[tuple[object, ...], int] = {}
        entries: list[int] = []
        slots: list[int] = []
        for index in indices:
            layout = self.cases[index].layout
            stage = layout.stages[0]
            part = stage.parts[0]
            sizes = tuple(part.size(axis) for axis in ("tp", "cp", "dp", "ep", "etp"))
            copies = stage.strategy.shard.optimizer.replicate if stage.strategy.shard.zero else 1
            key = (*sizes, copies, layout.mbs, stage.strategy.sequence_parallel, stage.strategy.cp_kind)
            if key not in keys:
                keys[key] = len(entries)
                entries.append(index)
            slots.append(keys[key])
        shape = np.array([list(key)[:6] for key in keys], dtype=np.int64)
        mesh = MeshShape(*(shape[:, column] for column in (0, 1, 2, 3, 4, 5)))
        return Shared(
            cases=tuple(indices),
            representative=indices[int(np.argmax(nodes))],
            entries=tuple(entries),
            slots=tuple(slots),
            mesh=mesh,
        )

    def predict(self, constants: Constants = SHIPPED, only: Sequence[int] | None = None) -> np.ndarray:
        """float64[cases] step seconds, NaN for cases left out by `only`."""
        seconds = np.full(len(self.cases), np.nan)
        for index, assembled in self.assemble(constants, only):
            seconds[index] = float(assembled.step_seconds()[0])
        return seconds

    def assemble(self, constants: Constants = SHIPPED, only: Sequence[int] | None = None) -> list[tuple[int, Assembled]]:
        """(index, kernels' outputs) of the wanted cases."""
        wanted = set(range(len(self.cases)) if only is None else only)
        found: list[tuple[int, Assembled]] = []
        for shared in self.sets:
            chosen = [(index, slot) for index, slot in zip(shared.cases, shared.slots, strict=True) if index in wanted]
            if chosen:
                found += self._set(shared, chosen, constants)
        for index in self.alone:
            if index in wanted:
                case = self.cases[index]
                model = cost_model(constants.apply(case.problem, case.profile, case.cluster_name), constants.shared_constants())
                found.append((index, assemble(model, case.layout)))
        return sorted(found, key=lambda entry: entry[0])

    def _set(self, shared: Shared, chosen: list[tuple[int, int]], constants: Constants) -> list[tuple[int, Assembled]]:
        case = self.cases[shared.representative]
        model = cost_model(constants.apply(case.problem, case.profile, case.cluster_name), constants.shared_constants())
        layouts = [self.cases[index].layout for index in shared.entries]
        points = points_of([(x.mbs, x.stages[0], x.stages[0].parts[0]) for x in layouts], model.scenarios.row_tokens)
        kinds, table = model.point_tables(0, points)
        meshes = model.mesh_table(0, shared.mesh)
        found = []
        for index, slot in chosen:
            rows = slice(slot, slot + 1)
            laid = self._laid_out(index, model, kinds[rows], table[rows], meshes[rows])
            own = replace(model, problem=self.cases[index].problem, scenarios=self.scenarios[index])
            found.append((index, assemble_laid_out(own, laid)))
        return found

    def _laid_out(self, index: int, model: CostModel, kinds: np.ndarray, points: np.ndarray, meshes: np.ndarray) -> LaidOut:
        """The layout over one row of each table: its stages are alike, so that all read the same."""
        known = self._laid.get(index)
        if known is None:
            known = lay_out_with(model, self.cases[index].layout, kinds, points, meshes)
            known = replace(known, point_at=np.zeros_like(known.point_at))
            self._laid[index] = known
            return known
        return replace(known, kinds=kinds, points=points, meshes=meshes)
