"""Plain figures of a length distribution, in tokens."""

from __future__ import annotations

import math

from solver.problem.lengths import Lognormal, SequenceLengths
from solver.problem.workload import Scenarios, Workload


def mean_tokens(lengths: SequenceLengths, max_sequence_length: int) -> float:
    """Mean length in tokens, longer ones cut at max_sequence_length; histogram bins at their upper edge."""
    if lengths.constant is not None:
        return float(min(lengths.constant, max_sequence_length))
    if lengths.lognormal is not None:
        return _lognormal_mean(lengths.lognormal, min(lengths.lognormal.max, max_sequence_length))
    if lengths.histogram is not None:
        rows = tuple(zip(lengths.histogram.edges[1:], lengths.histogram.counts, strict=True))
    else:
        assert lengths.counts is not None, "samples are completed by the counts of the last module"
        rows = lengths.counts
    total = sum(count for _, count in rows)
    return sum(min(length, max_sequence_length) * count for length, count in rows) / total


def _lognormal_mean(form: Lognormal, cap: int) -> float:
    """E[min(X, cap)] = m exp(s^2/2) Phi((ln(cap/m) - s^2) / s) + cap (1 - Phi(ln(cap/m) / s)), at least 1 token."""
    z = math.log(cap / form.median) / form.sigma
    inside = form.median * math.exp(form.sigma**2 / 2) * _phi(z - form.sigma)
    return max(1.0, min(float(cap), inside + cap * (1 - _phi(z))))


def _phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def expected_rows(workload: Workload) -> float:
    """About how many rows a global batch has, by the policy that makes the most of them."""
    batch, lengths = workload.global_batch, workload.sequence_lengths
    if batch.sequences is not None:
        return float(batch.sequences)
    assert batch.tokens is not None
    is_packed = "padded" not in workload.batching
    if is_packed or _unknown(lengths):
        return batch.tokens / workload.max_sequence_length if workload.max_sequence_length else 0.0
    return batch.tokens / mean_tokens(lengths, workload.max_sequence_length)


def _unknown(lengths: SequenceLengths) -> bool:
    """Samples that could not be completed (which was noted)."""
    return lengths.samples is not None and lengths.counts is None


def expected_draws(workload: Workload) -> float:
    """About how many sequence lengths are drawn for all scenarios (0 when the length is constant)."""
    lengths, batch = workload.sequence_lengths, workload.global_batch
    if lengths.is_constant or _unknown(lengths):
        return 0.0
    mean = mean_tokens(lengths, workload.max_sequence_length)
    if batch.tokens is not None:
        a_batch = batch.tokens / mean
    else:
        a_batch = expected_rows(workload) * (workload.max_sequence_length / mean if "packed" in workload.batching else 1.0)
    return a_batch * (workload.scenarios or Scenarios()).batches
