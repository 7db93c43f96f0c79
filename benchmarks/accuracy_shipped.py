"""The values that ship of the constants that are fitted."""

from __future__ import annotations

from benchmarks.fit.parameters import Parameter
from solver.catalog import clusters, devices, profiles
from solver.cost.shared import shared_constants


def shipped_value(parameter: Parameter) -> float | None:
    """What the catalogue has for a fitted constant."""
    target = parameter.targets[0] if parameter.targets else ""
    if parameter.kind == "shared":
        return float(getattr(shared_constants(), parameter.key))
    if parameter.kind == "profile":
        return profiles()[target].assumptions.get(parameter.key)
    if parameter.kind == "device":
        return devices()[target].content["rates"].get(parameter.key)
    machine, tier = target.split("/")
    return next((entry.get(parameter.key) for entry in clusters()[machine].fabric if entry["name"] == tier), None)
