"""The option grids of a stated space, restated for the replay of proof logs; nothing here is taken from the search."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import permutations, product
from math import gcd
from typing import Any

from solver.cost import columns as col
from solver.cost.table import CostModel
from solver.frameworks import RuleSet
from solver.schedules import Schedule, get_schedule, schedules

MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)
LEAST_TOKENS_PER_CONTEXT_HALF = 64
MOST_UNEVEN_CHUNKS = 8
LARGEST_CONTEXT_EXPONENT = 19
CP_KINDS = ("ring", "all_to_all")
SPLITS = ("even", "balanced", "timed")


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The grids of a problem under a framework and the constraints."""

    model: CostModel
    rules: RuleSet
    limits: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    cuts: dict[Hashable, Any] = field(default_factory=dict)
    """layer splits computed so far (`replay.splits`)"""

    @staticmethod
    def of(model: CostModel, rules: RuleSet) -> Options:
        constraints = model.problem.constraints
        limits = {name: tuple(values) for name, values in constraints.allowed.items()}
        return Options(model, rules, limits | {name: (value,) for name, value in constraints.fixed.items()})

    def among(self, name: str, grid: list[Any]) -> list[Any]:
        """The grid cut to what the constraints allow."""
        return [value for value in grid if name not in self.limits or value in self.limits[name]]

    def named(self, name: str, grid: list[int]) -> list[int]:
        """Values the user names replace the grid."""
        return sorted({int(value) for value in self.limits[name]}) if name in self.limits else grid

    @property
    def layers(self) -> int:
        return self.model.architecture.layers

    @property
    def experts(self) -> int:
        kinds = self.model.architecture.kinds
        return max((kind.mlp.experts for kind in kinds if kind.mlp is not None and kind.mlp.kind == "moe"), default=1)

    @property
    def tp(self) -> list[int]:
        """Divisors of all head counts that fill a node or divide it."""
        heads = gcd(*(kind.attention.heads for kind in self.model.architecture.kinds if kind.attention is not None)) or 1
        nodes = [group.devices_per_node for group in self.model.problem.cluster.groups]
        grid = [tp for tp in range(1, heads + 1) if heads % tp == 0 and all(n % tp == 0 or tp % n == 0 for n in nodes)]
        return self.named("tp", grid)

    @property
    def cp(self) -> list[int]:
        tokens = self.model.scenarios.row_tokens
        powers = [2**k for k in range(1, LARGEST_CONTEXT_EXPONENT + 1)]
        grid = [1] + [cp for cp in powers if tokens % (2 * cp) == 0 and tokens // (2 * cp) >= LEAST_TOKENS_PER_CONTEXT_HALF]
        return self.named("cp", grid)

    @property
    def ep(self) -> list[int]:
        return self.named("ep", [ep for ep in range(1, self.experts + 1) if self.experts % ep == 0])

    @property
    def etp(self) -> list[int]:
        if not self.rules.capabilities.expert_tensor_parallel or self.experts == 1:
            return [1]
        return self.named("etp", sorted({1, *self.tp}))

    @property
    def mbs(self) -> list[int]:
        return self.named("mbs", list(MICRO_BATCH_SIZES))

    @property
    def sequence_parallel(self) -> bool:
        return True in self.among("sequence_parallel", [True, False])

    @property
    def rows(self) -> list[int]:
        """Tolerated global batches in rows, nearest to the wanted one first."""
        wanted = self.model.scenarios.rows
        tolerance = self.model.problem.workload.global_batch.tolerance
        grid = [rows for rows in range(wanted * 2 + 1) if abs(rows - wanted) <= tolerance * wanted + 1e-9 and rows > 0]
        return sorted(self.among("gbs", grid), key=lambda rows: (abs(rows - wanted), rows))

    def cp_kinds(self, cp: int) -> list[str]:
        if cp == 1:
            return [CP_KINDS[0]]
        return self.among("cp_kind", [kind for kind in CP_KINDS if kind in self.rules.capabilities.cp_kinds]) or [CP_KINDS[0]]

    def depths(self, most: int) -> list[int]:
        return self.among("pp", list(range(1, min(most, self.layers) + 1)))

    def plain_schedules(self, pp: int) -> list[str]:
        """Schedules of one chunk per stage, in the order of their codes; the first stands for all on a single stage."""
        known = sorted(schedules().values(), key=lambda schedule: schedule.code)
        plain = [
            schedule.kind for schedule in known if schedule.chunks == 1 and schedule.kind in self.rules.capabilities.schedules
        ]
        found = self.among("schedule", plain) if self.among("vpp", [1]) else []
        return found if pp > 1 else found[:1]

    def shapes(self, pp: int) -> Iterator[tuple[str, int, str]]:
        """(schedule, vpp, split) of a pipeline depth."""
        found = [(kind, 1) for kind in self.plain_schedules(pp)]
        for schedule in schedules().values() if pp > 1 else ():
            if schedule.kind in self.rules.capabilities.schedules and self.among("schedule", [schedule.kind]):
                found += [(schedule.kind, vpp) for vpp in self.among("vpp", self._chunks(schedule, pp))]
        uneven = self.rules.capabilities.uneven_layers == "any" and pp > 1
        for (kind, vpp), split in product(found, list(SPLITS) if uneven else ["even"]):
            yield kind, vpp, split

    def _chunks(self, schedule: Schedule, pp: int) -> list[int]:
        """Numbers of chunks above one that a schedule may have."""
        if schedule.chunks is None:
            counts = range(2, self.layers // pp + 1)
            return [v for v in counts if v <= MOST_UNEVEN_CHUNKS or self.layers % (pp * v) == 0]
        depth = schedule.copies > 1 and pp % 2 > 0  # two directions meet in the middle
        if schedule.chunks == 1 or depth or schedule.pieces(pp, schedule.chunks) > self.layers:
            return []
        return [schedule.chunks]

    def runs(self, kind: str, pp: int, vpp: int, *micro_batches: int) -> bool:
        """Whether a schedule can run so many micro-batches on each replica."""
        if kind == "interleaved" and not self.rules.capabilities.ragged_interleaving and any(m % pp for m in micro_batches):
            return False
        return all(get_schedule(kind).refusal(pp, vpp, m) is None for m in micro_batches)

    def offload_percents(self) -> list[int]:
        grid = self.among("offload_optimizer", sorted(self.rules.capabilities.offload_optimizer_grid))
        return [round(100 * value) for value in grid] or [0]

    def modes(self) -> list[tuple[int, int]]:
        """Recompute mixtures; `selective` is the attention core when scores are materialised, else the cheap tensors."""
        workload = self.model.problem.workload
        operators = workload.software.assumptions["selective_saves_operators"] > 0.0
        unfused = workload.kernels.attention == "unfused" and not operators
        option = {
            "none": col.OPTION_NONE,
            "selective": col.OPTION_CORE_ATTENTION if unfused else col.OPTION_SELECTIVE,
            "full": col.OPTION_FULL,
        }
        words = [str(getattr(word, "kind", word)) for word in self.among("recompute", list(option))]
        freedom = self.rules.capabilities.per_layer_recompute
        if freedom == "any" and len(words) > 1:
            return [(option[a], option[b]) for a, b in product(words, words) if option[a] < option[b]]
        if freedom == "per_stage_count" and {"none", "full"} <= set(words):
            return [(option["none"], option["full"])] + [(option[word],) * 2 for word in words if word == "selective"]
        return [(option[word], option[word]) for word in words]

    def states(self) -> list[tuple[int, bool]]:
        """(ZeRO level, shard group inside a node)."""
        levels = self.among("zero", list(self.rules.capabilities.zero_levels))
        return [(zero, False) for zero in levels] + [(zero, True) for zero in levels if zero > 0]

    def devices(self, group: int) -> int:
        return self.model.networks[group].devices

    def per_node(self, group: int) -> int:
        return self.model.problem.cluster.groups[group].devices_per_node

    def pairs(self) -> list[tuple[int, int]]:
        groups = self.model.problem.cluster.groups
        unlike = self.rules.capabilities.unlike_devices
        return [
            (a, b)
            for a, b in permutations(range(len(groups)), 2)
            if unlike == "any" or (unlike == "one_vendor" and groups[a].device.vendor == groups[b].device.vendor)
        ]
