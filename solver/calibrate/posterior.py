"""Fitting a few positive constants to a few measurements: the most probable values under normal priors of their logarithms.

Residuals are `log(predicted / measured) / sigma`; large ones count less (Student weights, 2 degrees of freedom), since a run may
have been disturbed. Gauss-Newton with Levenberg's damping; the covariance is that of the last linearisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

STEP = 0.01
"""finite difference of a logarithm"""
FREEDOM = 2.0
MOST_ITERATIONS = 30
SETTLED = 1.0e-4
WIDE = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """`shift[n]` of the logarithms from their priors, `width[n]` their standard deviations, `prior_width[n]`;
    `cost` is minus the logarithm of the probability, up to a constant."""

    shift: np.ndarray
    width: np.ndarray
    prior_width: np.ndarray
    cost: float

    @property
    def determined(self) -> np.ndarray:
        """Whether the data, rather than the prior, set a constant."""
        return np.asarray(self.width < DETERMINED * self.prior_width)


DETERMINED = 0.7
"""posterior over prior width below which the data count as having set a constant"""


def most_probable(logarithms: Callable[[np.ndarray], np.ndarray], sigma: float, prior_width: np.ndarray) -> Posterior:
    """`logarithms(shift)` gives log(predicted / measured) per measurement at shifted constants.

    Far from the data every residual looks like a disturbed run, so there may be two optima: the one near the prior, and the one
    that is found when the noise is taken wide first. The more probable of them is taken.
    """
    nothing = np.zeros(len(prior_width))
    near = _from(nothing, logarithms, sigma, prior_width)
    wide = _from(nothing, logarithms, WIDE * sigma, prior_width)
    far = _from(wide.shift, logarithms, sigma, prior_width)
    return near if near.cost <= far.cost else far


def _from(start: np.ndarray, logarithms: Callable[[np.ndarray], np.ndarray], sigma: float, prior_width: np.ndarray) -> Posterior:
    shift = start
    residual = logarithms(shift) / sigma
    value = _objective(residual, shift, prior_width)
    damping = 1.0e-3
    normal = np.diag(1.0 / prior_width**2)
    for _ in range(MOST_ITERATIONS):
        jacobian = _jacobian(logarithms, shift, residual, sigma)
        weights = (FREEDOM + 1.0) / (FREEDOM + residual**2)
        normal = jacobian.T @ (weights[:, None] * jacobian) + np.diag(1.0 / prior_width**2)
        gradient = jacobian.T @ (weights * residual) + shift / prior_width**2
        moved = False
        while damping < 1.0e6 and not moved:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            trial = shift + step
            trial_residual = logarithms(trial) / sigma
            trial_value = _objective(trial_residual, trial, prior_width)
            moved = trial_value < value
            damping = damping / 5.0 if moved else damping * 5.0
        if not moved:
            break
        small = value - trial_value < SETTLED * (1.0 + value)
        shift, residual, value = trial, trial_residual, trial_value
        if small:
            break
    width = np.sqrt(np.diag(np.linalg.inv(normal)))
    return Posterior(shift=shift, width=width, prior_width=prior_width, cost=value)


def _jacobian(
    logarithms: Callable[[np.ndarray], np.ndarray], shift: np.ndarray, residual: np.ndarray, sigma: float
) -> np.ndarray:
    columns = []
    for index in range(len(shift)):
        moved = shift.copy()
        moved[index] += STEP
        columns.append((logarithms(moved) / sigma - residual) / STEP)
    return np.stack(columns, axis=1) if columns else np.zeros((len(residual), 0))


def _objective(residual: np.ndarray, shift: np.ndarray, prior_width: np.ndarray) -> float:
    data = (FREEDOM + 1.0) / 2.0 * np.log1p(residual**2 / FREEDOM).sum()
    return float(data + 0.5 * ((shift / prior_width) ** 2).sum())
