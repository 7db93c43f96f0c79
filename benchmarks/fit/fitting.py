"""Least squares of log(predicted / measured) with log-normal priors: sparse in devices, profiles and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from benchmarks.fit.data import Run
from benchmarks.fit.parameters import Parameter
from solver.validate import Constants, Harness

ROW_ERROR = 0.03
"""spread of log(predicted / measured) that counts as one, before weights: the noise of repeated runs"""
STEP = 2e-3
FILE_POWER = -0.25


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values by parameter, their constants, and which stayed where their prior put them."""

    parameters: tuple[Parameter, ...]
    values: np.ndarray
    moved: np.ndarray
    cost: float

    @property
    def constants(self) -> Constants:
        return constants_of(self.parameters, self.values)


def constants_of(parameters: Sequence[Parameter], values: np.ndarray) -> Constants:
    """Constants with every parameter at its value."""
    shared: dict[str, float] = {}
    profiles: dict[str, dict[str, float]] = {}
    devices: dict[str, dict[str, float]] = {}
    tiers: dict[tuple[str, str], float] = {}
    for parameter, value in zip(parameters, values, strict=True):
        if parameter.kind == "shared":
            shared[parameter.key] = float(value)
        for target in parameter.targets:
            if parameter.kind == "profile":
                profiles.setdefault(target, {})[parameter.key] = float(value)
            elif parameter.kind == "device":
                devices.setdefault(target, {})[parameter.key] = float(value)
            elif parameter.kind == "tier":
                machine, tier = target.split("/")
                tiers[machine, tier] = float(value)
    return Constants(shared=shared, profiles=profiles, devices=devices, tiers=tiers)


class Problem:
    """Runs with their weights, the harness that prices them, and which of them each parameter touches."""

    def __init__(self, runs: Sequence[Run], parameters: Sequence[Parameter]) -> None:
        self.runs = tuple(runs)
        self.parameters = tuple(parameters)
        self.harness = Harness([run.case for run in runs])
        self.measured_s = np.array([run.measured_s for run in runs])
        counts = {run.file: sum(other.file == run.file for other in runs) for run in runs}
        self.weights = np.array([counts[run.file] ** FILE_POWER for run in runs]) / ROW_ERROR
        self.touched = [self._touched(parameter) for parameter in parameters]
        self.prior = np.log([parameter.prior for parameter in parameters])
        self.width = np.array([parameter.width for parameter in parameters])

    def _touched(self, parameter: Parameter) -> np.ndarray:
        if parameter.kind == "shared":
            return np.arange(len(self.runs))
        found = []
        for index, run in enumerate(self.runs):
            case = run.case
            names: tuple[str | None, ...] = case.devices if parameter.kind == "device" else (case.profile,)
            if parameter.kind == "tier":
                names = tuple(target for target in parameter.targets if target.split("/")[0] == case.cluster_name)
            if any(name in parameter.targets for name in names):
                found.append(index)
        return np.array(found, dtype=np.int64)

    def log_ratios(self, logs: np.ndarray, only: np.ndarray | None = None) -> np.ndarray:
        """log(predicted / measured) of the runs (NaN for those left out)."""
        constants = constants_of(self.parameters, np.exp(logs))
        predicted = self.harness.predict(constants, None if only is None else only.tolist())
        return np.asarray(np.log(predicted / self.measured_s))

    def residuals(self, logs: np.ndarray) -> np.ndarray:
        return np.concatenate([self.log_ratios(logs) * self.weights, (logs - self.prior) / self.width])

    def jacobian(self, logs: np.ndarray) -> np.ndarray:
        """Forward differences, each parameter on the runs it touches."""
        base = self.log_ratios(logs)
        result = np.zeros((len(self.runs) + len(logs), len(logs)))
        for column, touched in enumerate(self.touched):
            if not len(touched):
                continue
            step = -STEP if logs[column] + STEP > np.log(self.parameters[column].high) else STEP
            moved = logs.copy()
            moved[column] += step
            difference = self.log_ratios(moved, touched)[touched] - base[touched]
            result[touched, column] = difference / step * self.weights[touched]
        result[len(self.runs) :] = np.diag(1.0 / self.width)
        return result


def fit(runs: Sequence[Run], parameters: Sequence[Parameter], start: np.ndarray | None = None, evaluations: int = 12) -> Fitted:
    """Fit all parameters on the runs, from `start` (values) or the priors."""
    problem = Problem(runs, parameters)
    low = np.log([parameter.low for parameter in parameters])
    high = np.log([parameter.high for parameter in parameters])
    first = problem.prior if start is None else np.log(start)
    solution = least_squares(
        problem.residuals,
        np.clip(first, low + 1e-9, high - 1e-9),
        jac=problem.jacobian,
        bounds=(low, high),
        loss="soft_l1",
        x_scale=problem.width,
        max_nfev=evaluations,
        ftol=1e-4,
        xtol=1e-4,
    )
    jacobian = problem.jacobian(solution.x)[: len(runs)]
    determined = np.sqrt((jacobian**2).sum(axis=0)) * problem.width
    return Fitted(problem.parameters, np.exp(solution.x), determined > 1.0, float(solution.cost))
