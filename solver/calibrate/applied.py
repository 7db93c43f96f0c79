"""A problem document with a calibrated profile in place of its name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from solver.catalog import UnknownName, find_device


def apply_profile(problem: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """A problem document with a profile document in place of its name: software constants, and rates of the devices it knows.

    What the problem itself assumes wins over the profile.
    """
    document = copy.deepcopy(dict(problem))
    workload = document.setdefault("workload", {})
    given = workload.get("software")
    own = given.get("assumptions", {}) if isinstance(given, Mapping) else {}
    software = profile["software"]
    workload["software"] = {"name": software["name"], "assumptions": {**software["assumptions"], **own}}
    rates = {entry["name"]: entry["rates"] for entry in profile["devices"]}
    cluster = document.get("cluster")
    if isinstance(cluster, dict):
        cluster.pop("profile", None)
        for group in cluster.get("groups") or ():
            if isinstance(group, dict) and isinstance(group.get("device"), str):
                group["device"] = _device_with(group["device"], rates)
    return document


def _device_with(name: str, rates: Mapping[str, Mapping[str, float]]) -> Any:
    """The device's content with its calibrated rates, its name where it has none."""
    try:
        entry = find_device(name)
    except UnknownName:
        return name
    if entry.name not in rates:
        return name
    return {**entry.content, "rates": {**entry.content["rates"], **rates[entry.name]}}
