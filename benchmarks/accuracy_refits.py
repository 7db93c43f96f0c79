"""Constants refitted without one file, kept so that a long run can be resumed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy_shipped import shipped_value
from benchmarks.fit.data import MEASUREMENTS, Run, listed
from benchmarks.fit.fitting import Fitted, Problem, constants_of, fit, left_out
from benchmarks.fit.parameters import Parameter, parameters
from benchmarks.fit.runs import all_runs
from solver.calibrate.parameters import UNCALIBRATED_ERROR
from solver.catalog import devices, profiles
from solver.validate import Constants
from solver.versions import versions

UNKNOWN = {"time_error_fraction": UNCALIBRATED_ERROR}
KEPT = Path(__file__).resolve().parents[1] / "build" / "accuracy.refits.json"


@dataclass
class Refits:
    """`without(file)` is what the fitter gives when it has never seen the file. One Jacobian serves all files."""

    fresh: bool = False

    def without(self, name: str) -> Constants:
        """Constants of the fit without a file."""
        key = f"{name} {_digest()}"
        kept = {} if self.fresh else _read()
        if key not in kept:
            kept = {**_read(), key: _document(self._refitted(name))}
            KEPT.parent.mkdir(exist_ok=True, parents=True)
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return _constants(kept[key])

    @cached_property
    def _whole(self) -> tuple[Problem, Fitted]:
        """The fit on all listed runs, from what ships."""
        ids, tried = listed(), parameters()
        runs = [run for run in all_runs() if run.row_id in ids]
        start = np.array([_start(parameter) for parameter in tried])
        return Problem(runs, tried), fit(runs, tried, start, 1)

    def _refitted(self, name: str) -> Constants:
        problem, whole = self._whole
        fitted = left_out(problem, whole, name)
        left = [run for run in problem.runs if run.file != name]
        constants = constants_of(fitted.parameters, _without_hindsight(fitted, left))
        known = {run.case.profile for run in left}
        profiles = {key: values if key in known else {**values, **UNKNOWN} for key, values in constants.profiles.items()}
        return replace(constants, profiles=profiles)


def _start(parameter: Parameter) -> float:
    """What ships, else the prior: where the search for the refit begins, not what holds it."""
    value = shipped_value(parameter)
    return parameter.prior if value is None else min(max(value, parameter.low), parameter.high)


def _without_hindsight(fitted: Fitted, runs: list[Run]) -> np.ndarray:
    """Values in which a profile's constant that no run touches is the geometric mean of that constant of the other profiles.

    Its prior was written down by somebody who had seen the file.
    """
    values = fitted.values.copy()
    touched = {run.case.profile for run in runs}
    for index, parameter in enumerate(fitted.parameters):
        if parameter.kind != "profile" or touched & set(parameter.targets):
            continue
        others = [
            value
            for other, value in zip(fitted.parameters, fitted.values, strict=True)
            if other.kind == "profile" and other.key == parameter.key and touched & set(other.targets)
        ]
        if others:
            values[index] = float(np.exp(np.mean(np.log(others))))
    return values


def _digest() -> str:
    """Of what a refit hangs on: rows, priors, versions, data, and what the catalogue says beside the fitted constants."""
    fitted = {(target, parameter.key) for parameter in parameters() for target in parameter.targets}
    parts = [repr(sorted(listed())), repr([asdict(parameter) for parameter in parameters()]), repr(sorted(versions().items()))]
    for profile in profiles().values():
        parts.append(repr(sorted(item for item in profile.assumptions.items() if (profile.name, item[0]) not in fitted)))
    for device in devices().values():
        rates = {key: value for key, value in device.content["rates"].items() if (device.name, key) not in fitted}
        parts.append(repr(sorted({**device.content, "rates": sorted(rates.items())}.items(), key=lambda item: item[0])))
    parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(MEASUREMENTS.glob("*.csv"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _read() -> dict[str, Any]:
    return dict(json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.exists() else {}


def _document(constants: Constants) -> dict[str, Any]:
    tiers = {f"{machine}/{tier}": value for (machine, tier), value in constants.tiers.items()}
    return {
        "shared": dict(constants.shared),
        "profiles": {name: dict(values) for name, values in constants.profiles.items()},
        "devices": {name: dict(values) for name, values in constants.devices.items()},
        "tiers": tiers,
    }


def _constants(document: dict[str, Any]) -> Constants:
    tiers = {}
    for key, value in document["tiers"].items():
        machine, tier = key.split("/")
        tiers[machine, tier] = value
    return Constants(document["shared"], document["profiles"], document["devices"], tiers)
