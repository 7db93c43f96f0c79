"""Plain figures of a table of lengths: moments, quantiles, what a limit cuts, how full padded rows and packs are."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from solver.importers.lengths_packing import first_fit_decreasing
from solver.importers.lengths_table import LengthTable

QUANTILES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def statistics(table: LengthTable) -> dict[str, Any]:
    """Documents, tokens, moments and quantiles; the q-quantile is the shortest length that q of the documents do not exceed."""
    lengths, counts = table.rows()
    mean = table.tokens / table.documents
    deviations = lengths.astype(np.float64) - mean
    variance = max(table.squares / table.documents - mean**2, 0.0)
    third = float((deviations**3 * counts).sum()) / table.documents
    reached = np.cumsum(counts)
    at = [int(lengths[np.searchsorted(reached, q * table.documents)]) for q in QUANTILES]
    return {
        "documents": table.documents,
        "tokens": table.tokens,
        "min_tokens": table.shortest,
        "max_tokens": table.longest,
        "mean_tokens": mean,
        "standard_deviation_tokens": math.sqrt(variance),
        "mean_square_tokens": table.squares / table.documents,
        "skewness": third / variance**1.5 if variance > 0 else 0.0,
        "distinct_lengths": len(lengths),
        "quantiles_tokens": {f"{q:g}": value for q, value in zip(QUANTILES, at, strict=True)},
    }


def against_limit(table: LengthTable, limit_tokens: int) -> dict[str, Any]:
    """What lies above the limit, what cutting there loses, and how full rows of that length are."""
    lengths, counts = table.rows()
    above = lengths > limit_tokens
    cut = np.minimum(lengths, limit_tokens)
    kept_tokens = int((cut * counts).sum())
    rows, where = np.unique(cut, return_inverse=True)
    packs, error = first_fit_decreasing(rows, np.bincount(where, weights=counts).astype(np.int64), limit_tokens)
    return {
        "max_sequence_length": limit_tokens,
        "documents_above_fraction": float(counts[above].sum()) / table.documents,
        "tokens_in_documents_above_fraction": float((lengths * counts)[above].sum()) / table.tokens,
        "tokens_cut_fraction": 1.0 - kept_tokens / float((lengths * counts).sum()),
        "padded_efficiency": kept_tokens / (table.documents * limit_tokens),
        "packs_first_fit_decreasing": packs,
        "packed_efficiency": kept_tokens / (packs * limit_tokens),
        "packing_length_error": error,
    }
