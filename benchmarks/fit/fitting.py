"""Least squares of log(predicted / measured) with log-normal priors: sparse in devices, profiles and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.fit.data import Run
from benchmarks.fit.parameters import Parameter
from solver.validate import Constants, Harness

ROW_ERROR = 0.03
"""spread of log(predicted / measured) that counts as one, before weights: the noise of repeated runs"""
STEP = 2e-3
FILE_POWER = -0.25
STEPS = 5
LEAST_GAIN = 1e-4


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values by parameter, whether the data moved them, the cost, and the last Jacobian."""

    parameters: tuple[Parameter, ...]
    values: np.ndarray
    moved: np.ndarray
    cost: float
    jacobian: np.ndarray

    @property
    def constants(self) -> Constants:
        """As trials take them."""
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
        self.low = np.log([parameter.low for parameter in parameters])
        self.high = np.log([parameter.high for parameter in parameters])

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

    def jacobian(self, logs: np.ndarray) -> np.ndarray:
        """[runs, parameters] derivatives of the weighted log ratios: forward differences, each on the runs it touches."""
        base = self.log_ratios(logs)
        result = np.zeros((len(self.runs), len(logs)))
        for column, touched in enumerate(self.touched):
            if not len(touched):
                continue
            step = -STEP if logs[column] + STEP > self.high[column] else STEP
            moved = logs.copy()
            moved[column] += step
            difference = self.log_ratios(moved, touched)[touched] - base[touched]
            result[touched, column] = difference / step * self.weights[touched]
        return result

    def cost(self, logs: np.ndarray, kept: np.ndarray) -> tuple[float, np.ndarray]:
        """(cost, weighted log ratios): soft-l1 over the kept runs, squares over the priors."""
        found = np.zeros(len(self.runs))
        found[kept] = self.log_ratios(logs, kept)[kept] * self.weights[kept]
        robust = 2.0 * (np.sqrt(1.0 + found[kept] ** 2) - 1.0)
        return float(robust.sum() + (((logs - self.prior) / self.width) ** 2).sum()), found

    def descend(self, logs: np.ndarray, jacobian: np.ndarray, kept: np.ndarray, steps: int = STEPS) -> np.ndarray:
        """Gauss-Newton steps with one Jacobian and reweighted runs; a step that does not lower the cost is halved."""
        logs = logs.copy()
        used = jacobian[kept]
        idle = ~np.any(used != 0.0, axis=0)
        logs[idle] = self.prior[idle]
        cost, found = self.cost(logs, kept)
        for _ in range(steps):
            weights = 1.0 / np.sqrt(1.0 + found[kept] ** 2)
            normal = used.T @ (used * weights[:, None]) + np.diag(1.0 / self.width**2)
            slope = used.T @ (weights * found[kept]) + (logs - self.prior) / self.width**2
            step = -np.linalg.solve(normal, slope)
            for shorter in (1.0, 0.5, 0.2):
                trial = np.clip(logs + shorter * step, self.low, self.high)
                trial_cost, trial_found = self.cost(trial, kept)
                if trial_cost < cost:
                    break
            else:
                break
            gained = cost - trial_cost
            logs, cost, found = trial, trial_cost, trial_found
            if gained < LEAST_GAIN * cost:
                break
        return logs


def fit(runs: Sequence[Run], parameters: Sequence[Parameter], start: np.ndarray | None = None, rounds: int = 3) -> Fitted:
    """Fit all parameters on the runs, from `start` (values) or the priors; a round is one Jacobian and its steps."""
    problem = Problem(runs, parameters)
    every = np.arange(len(runs))
    logs = np.clip(problem.prior if start is None else np.log(start), problem.low, problem.high)
    jacobian = np.zeros((len(runs), len(logs)))
    for _ in range(rounds):
        jacobian = problem.jacobian(logs)
        logs = problem.descend(logs, jacobian, every)
    return _fitted(problem, logs, jacobian, every)


def left_out(problem: Problem, fitted: Fitted, file: str) -> Fitted:
    """Refit without a file, from the full fit and with its Jacobian: constants that no other run touches fall to their prior."""
    kept = np.array([index for index, run in enumerate(problem.runs) if run.file != file], dtype=np.int64)
    logs = problem.descend(np.log(fitted.values), fitted.jacobian, kept, 2 * STEPS)
    return _fitted(problem, logs, fitted.jacobian, kept)


def _fitted(problem: Problem, logs: np.ndarray, jacobian: np.ndarray, kept: np.ndarray) -> Fitted:
    determined = np.sqrt((jacobian[kept] ** 2).sum(axis=0)) * problem.width
    cost, _ = problem.cost(logs, kept)
    return Fitted(problem.parameters, np.exp(logs), determined > 1.0, cost, jacobian)
