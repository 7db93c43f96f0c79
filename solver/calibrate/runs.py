"""From a handful of measured runs to the constants of their profile and, where the runs determine them, of their devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.calibrate.parameters import Parameter, device_parameters, profile_parameters, with_values
from solver.calibrate.posterior import Posterior, most_probable
from solver.validate.cases import Case
from solver.validate.constants import SHIPPED, Constants
from solver.validate.harness import Harness

SIGMA = 0.03
"""noise of repeated runs; what the form of the model misses falls under the heavy tails"""
LEAST_ERROR = 0.03
MOST_ERROR = 0.9
"""beyond it the runs are not of this problem's kind at all"""
PRIOR_ROWS = 3.0
"""the profile's own error counts like this many rows"""
NINETY_PERCENT = 1.645
MOST_FOLDS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """`values` of all parameters tried (undetermined device rates stay as shipped); `constants` with them applied."""

    parameters: tuple[Parameter, ...]
    values: tuple[float, ...]
    determined: tuple[bool, ...]
    constants: Constants


def refit(
    harness: Harness,
    chosen: Sequence[int],
    measured_s: np.ndarray,
    base: Constants = SHIPPED,
    *,
    with_devices: bool = True,
) -> Fitted:
    """Refit the profiles (and devices) of the chosen cases to their measured seconds, shrunk to `base`."""
    cases = [harness.cases[index] for index in chosen]
    target = np.log(measured_s[list(chosen)])
    profile = _profiles(cases, base)
    devices = _devices(cases, base) if with_devices else []
    parameters = [*profile, *devices]
    posterior = _posterior(harness, chosen, target, base, parameters)
    kept = [
        parameter
        for parameter, known in zip(parameters, posterior.determined, strict=True)
        if known or parameter.scope == "profile"
    ]
    if len(kept) < len(parameters):
        posterior = _posterior(harness, chosen, target, base, kept)
    values = {
        parameter: parameter.bounded(parameter.shipped * float(np.exp(shift)))
        for parameter, shift in zip(kept, posterior.shift, strict=True)
    }
    known = dict(zip(kept, posterior.determined, strict=True))
    return Fitted(
        parameters=tuple(parameters),
        values=tuple(values.get(parameter, parameter.shipped) for parameter in parameters),
        determined=tuple(bool(known.get(parameter, False)) for parameter in parameters),
        constants=with_values(base, values),
    )


def _posterior(
    harness: Harness, chosen: Sequence[int], target: np.ndarray, base: Constants, parameters: Sequence[Parameter]
) -> Posterior:
    def logarithms(shift: np.ndarray) -> np.ndarray:
        values = {p: p.shipped * float(np.exp(s)) for p, s in zip(parameters, shift, strict=True)}
        seconds = harness.predict(with_values(base, values), chosen)[list(chosen)]
        return np.asarray(np.log(seconds) - target)

    return most_probable(logarithms, SIGMA, np.array([parameter.width for parameter in parameters]))


def _profiles(cases: Sequence[Case], base: Constants) -> list[Parameter]:
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        applied = base.apply(case.problem, case.profile, case.cluster_name)
        found[case.profile] = dict(applied.workload.software.assumptions)
    return [parameter for name in sorted(found) for parameter in profile_parameters(name, found[name])]


def _devices(cases: Sequence[Case], base: Constants) -> list[Parameter]:
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        for group in base.apply(case.problem, case.profile, case.cluster_name).cluster.groups:
            found[group.device.name] = group.device.rates.model_dump()
    return [parameter for name in sorted(found) for parameter in device_parameters(name, found[name])]


def left_out(harness: Harness, chosen: Sequence[int], measured_s: np.ndarray, base: Constants = SHIPPED) -> np.ndarray:
    """log(predicted / measured) of each chosen case, predicted from a refit without it (in at most MOST_FOLDS parts)."""
    found = np.zeros(len(chosen))
    folds = min(len(chosen), MOST_FOLDS)
    for fold in range(folds):
        out = [index for position, index in enumerate(chosen) if position % folds == fold]
        others = [index for index in chosen if index not in out]
        constants = refit(harness, others, measured_s, base).constants if others else base
        seconds = harness.predict(constants, out)
        found[fold::folds] = np.log(seconds[out] / measured_s[out])
    return found


def error_fraction(residuals: np.ndarray, prior_fraction: float) -> float:
    """Half width of the central 90 % after a calibration: left-out residuals, mixed with the base profile's own error."""
    prior = prior_fraction / NINETY_PERCENT
    mixed = (PRIOR_ROWS * prior**2 + float((residuals**2).sum())) / (PRIOR_ROWS + len(residuals))
    return min(MOST_ERROR, max(LEAST_ERROR, NINETY_PERCENT * float(np.sqrt(mixed))))
