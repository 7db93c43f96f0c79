"""Constants of the cost model replaced for a trial, without touching the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from solver.cost.shared import SharedConstants, shared_constants
from solver.problem import Group, Problem


@dataclass(frozen=True)
class Constants:
    """`shared`: fields of SharedConstants; `profiles`, `devices`: by name (a device's are its rates); `tiers`: efficiency of a
    published machine's tier by (machine, tier)."""

    shared: Mapping[str, float] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tiers: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def shared_constants(self) -> SharedConstants:
        """The shipped shared constants with this trial's values."""
        return replace(shared_constants(), **self.shared)

    def apply(self, problem: Problem, profile: str, cluster_name: str | None) -> Problem:
        """The normalised problem with the constants that concern it replaced."""
        assumptions = dict(self.profiles.get(profile, {}))
        workload = problem.workload
        if assumptions:
            merged = {**workload.software.assumptions, **assumptions}
            software = workload.software.model_copy(update={"assumptions": merged})
            workload = workload.model_copy(update={"software": software})
        groups = tuple(self._group(group, cluster_name) for group in problem.cluster.groups)
        cluster = problem.cluster.model_copy(update={"groups": groups})
        return problem.model_copy(update={"workload": workload, "cluster": cluster})

    def _group(self, group: Group, cluster_name: str | None) -> Group:
        rates = self.devices.get(group.device.name)
        if rates:
            changed = group.device.rates.model_copy(update=dict(rates))
            group = group.model_copy(update={"device": group.device.model_copy(update={"rates": changed})})
        wanted = {tier: value for (machine, tier), value in self.tiers.items() if machine == cluster_name}
        if wanted:
            fabric = tuple(
                tier.model_copy(update={"efficiency": wanted[tier.name]}) if tier.name in wanted else tier
                for tier in group.fabric
            )
            group = group.model_copy(update={"fabric": fabric})
        return group


SHIPPED = Constants()
