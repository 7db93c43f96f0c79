"""Sequence lengths compiled to a fixed scenario set (DESIGN 5).

A scenario is one global batch: documents drawn independently by PCG64(seed) through our own inverse distribution function, laid
out in `rows` rows of `row_tokens`. The *attention work* of a row is `sum(s^2 + 400 s)` over its documents: the score area plus
the ramp of the flash kernel (`solver.cost.compute.ATTENTION_RAMP_TOKENS`); padded rows and unfused kernels compute the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from solver.cost.pack_kernels import RAMP_TOKENS, pack_rows
from solver.problem import Problem, SequenceLengths

DRAW_BLOCK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioSet:
    """`work[scenarios, rows]` attention work of each row, longest first; `real_tokens[scenarios]` without padding;
    `real_squares[scenarios]` = sum of s^2 over the documents, for model FLOPs."""

    row_tokens: int
    rows: int
    work: np.ndarray
    real_tokens: np.ndarray
    real_squares: np.ndarray

    @property
    def count(self) -> int:
        return int(self.work.shape[0])

    @property
    def equal_rows(self) -> bool:
        """All rows of all scenarios cost the same."""
        return bool(np.all(self.work == self.work.flat[0]))

    @property
    def least_work(self) -> float:
        return float(self.work.min())

    @property
    def padding_fraction(self) -> float:
        return float(1.0 - self.real_tokens.mean() / (self.rows * self.row_tokens))


def scenario_set(problem: Problem) -> ScenarioSet:
    """Scenario set of a normalised problem (padded or packed batching)."""
    workload = problem.workload
    row_tokens = int(workload.max_sequence_length)
    batching = workload.batching[0]
    constant = only_length(problem)
    rows = row_count(problem)
    whole_row = row_tokens * (row_tokens + RAMP_TOKENS)
    unfused = workload.kernels.attention == "unfused"
    if constant is not None:
        per_row = 1 if batching == "padded" else max(1, row_tokens // int(constant))
        length = min(int(constant), row_tokens)
        work = whole_row if (batching == "padded" or unfused) else per_row * length * (length + RAMP_TOKENS)
        tokens = np.array([float(rows * per_row * length)])
        full = np.full((1, rows), float(work))
        return ScenarioSet(row_tokens=row_tokens, rows=rows, work=full, real_tokens=tokens, real_squares=tokens * length)
    settings = workload.scenarios
    assert settings is not None, "lengths that vary have scenarios"
    generator = np.random.Generator(np.random.PCG64(settings.seed))
    works = np.empty((settings.batches, rows))
    tokens_of = np.empty(settings.batches)
    squares_of = np.empty(settings.batches)
    for index in range(settings.batches):
        if batching == "padded":
            lengths = np.minimum(draw_lengths(workload.sequence_lengths, generator, rows), row_tokens)
            works[index] = whole_row
            tokens_of[index] = lengths.sum()
            squares_of[index] = (lengths.astype(np.float64) ** 2).sum()
            continue
        row_work, tokens_of[index] = _packed_batch(workload.sequence_lengths, generator, rows, row_tokens)
        squares_of[index] = row_work.sum() - RAMP_TOKENS * tokens_of[index]
        works[index] = np.full(rows, whole_row) if unfused else np.sort(row_work)[::-1]
    return ScenarioSet(row_tokens=row_tokens, rows=rows, work=works, real_tokens=tokens_of, real_squares=squares_of)


def only_length(problem: Problem) -> int | None:
    """The one length that every document has, None when lengths vary (the normal form then has scenarios)."""
    lengths = problem.workload.sequence_lengths
    if lengths.constant is not None:
        return int(lengths.constant)
    return None if problem.workload.scenarios is not None else int(quantile(lengths, np.array([0.5]))[0])


def row_count(problem: Problem) -> int:
    """Rows of a global batch: `sequences`, or `tokens` over the mean tokens of a row (DESIGN 3.1, agreement)."""
    batch = problem.workload.global_batch
    if batch.sequences is not None:
        return int(batch.sequences)
    assert batch.tokens is not None
    row_tokens = float(problem.workload.max_sequence_length)
    mean = row_tokens
    if problem.workload.batching[0] == "padded" or problem.workload.sequence_lengths.constant is not None:
        mean = mean_length(problem.workload.sequence_lengths, row_tokens)
    return max(1, round(batch.tokens / mean))


def mean_length(lengths: SequenceLengths, longest: float) -> float:
    """Mean document length after truncation at `longest` (lognormal: by its own quantiles)."""
    if lengths.constant is not None:
        return min(float(lengths.constant), longest)
    values = quantile(lengths, (np.arange(4096) + 0.5) / 4096)
    return float(np.minimum(values, longest).mean())


def draw_lengths(lengths: SequenceLengths, generator: np.random.Generator, count: int) -> np.ndarray:
    """int64[count] document lengths in tokens, drawn by inverse distribution function."""
    return quantile(lengths, generator.random(count))


def quantile(lengths: SequenceLengths, probability: np.ndarray) -> np.ndarray:
    """Inverse distribution function: counts by rank, histogram bins at their upper edge, lognormal capped at its maximum."""
    if lengths.counts is not None:
        pairs = sorted((int(length), int(number)) for length, number in lengths.counts)
        values = np.array([length for length, _ in pairs], dtype=np.int64)
        cumulative = np.cumsum(np.array([number for _, number in pairs], dtype=np.float64))
        return _inverse(values, cumulative, probability)
    if lengths.histogram is not None:
        upper = np.array(lengths.histogram.edges[1:], dtype=np.int64)
        cumulative = np.cumsum(np.array(lengths.histogram.counts, dtype=np.float64))
        return _inverse(upper, cumulative, probability)
    shape = lengths.lognormal
    assert shape is not None
    normal = NormalDist()
    scores = np.array([normal.inv_cdf(min(max(float(value), 1e-12), 1.0 - 1e-12)) for value in probability])
    drawn = np.ceil(shape.median * np.exp(shape.sigma * scores))
    return np.clip(drawn, 1, shape.max).astype(np.int64)


def _inverse(values: np.ndarray, cumulative: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The value at each probability, from the running sum of the values' weights."""
    position = np.searchsorted(cumulative / cumulative[-1], probability, side="right").clip(0, len(values) - 1)
    found: np.ndarray = values[position]
    return found


def _packed_batch(
    lengths: SequenceLengths, generator: np.random.Generator, rows: int, row_tokens: int
) -> tuple[np.ndarray, float]:
    """Draw until the batch's tokens are reached, pack longest first into the first row with room; what finds none waits."""
    drawn: list[np.ndarray] = []
    total = 0
    while total < rows * row_tokens:
        block = np.minimum(draw_lengths(lengths, generator, DRAW_BLOCK), row_tokens)
        needed = int(np.searchsorted(np.cumsum(block), rows * row_tokens - total)) + 1
        drawn.append(block[:needed])
        total += int(block[:needed].sum())
    work = np.zeros(rows)
    longest_first = np.ascontiguousarray(np.sort(np.concatenate(drawn))[::-1])
    return work, float(pack_rows(longest_first, row_tokens, work))
