"""Errors of predictions per file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def summary(files: Sequence[str], log_ratios: np.ndarray) -> dict[str, tuple[int, float, float, float, float, float]]:
    """Per file (rows, mean, median, 90th percentile and maximum of |predicted/measured - 1|, signed median)."""
    found = {}
    names = np.array(files)
    for file in sorted(set(files)):
        errors = np.expm1(log_ratios[names == file])
        size = np.abs(errors)
        found[file] = (
            len(errors),
            float(size.mean()),
            float(np.median(size)),
            float(np.quantile(size, 0.9)),
            float(size.max()),
            float(np.median(errors)),
        )
    return found
