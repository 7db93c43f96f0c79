"""Sequence lengths compiled to a fixed scenario set (DESIGN 5).

A scenario is one global batch: documents drawn independently by PCG64(seed) through our own inverse distribution function, laid
out in `rows` rows of `row_tokens`. The *attention work* of a row is `sum(s^2 + 400 s)` over its documents: the score area plus
the ramp of the flash kernel (`solver.cost.pack_kernels.RAMP_TOKENS`); padded rows and unfused kernels compute the whole row.

Layers that see a window or a chunk do less: `2 s w - w^2` and the squares of the chunks in place of `s^2`. Their work in a row is
kept as an affine share of the row's full work, exact for equal rows and in the mean over all rows (least squares otherwise).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from solver.cost.pack_kernels import RAMP_TOKENS, pack_rows
from solver.problem import MlaAttention, Problem, SequenceLengths, SoftmaxAttention

DRAW_BLOCK = 1024
Reach = tuple[int | None, int | None]
"""(window_tokens, chunk_tokens) of an attention; (None, None) sees the whole sequence"""


@dataclass(frozen=True, slots=True)
class WorkShare:
    """Attention work of one row within a reach: fixed + per_work x full work."""

    fixed: float
    per_work: float


WHOLE: Reach = (None, None)


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioSet:
    """`work[scenarios, rows]` attention work of each row, longest first; `real_tokens[scenarios]` without padding;
    `real_squares[reach]` = mean over scenarios of the sum of s^2 over the documents, or less within a window or chunk, for
    model FLOPs; `shares` by reach of attention."""

    row_tokens: int
    rows: int
    work: np.ndarray
    real_tokens: np.ndarray
    real_squares: dict[Reach, float]
    shares: dict[Reach, WorkShare]

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
    if only_length(problem) is not None:
        return _constant_set(problem)
    return _drawn_set(problem)


def _constant_set(problem: Problem) -> ScenarioSet:
    """One scenario of equal rows."""
    workload = problem.workload
    row_tokens = int(workload.max_sequence_length)
    rows = row_count(problem)
    padded = workload.batching[0] == "padded"
    length = min(int(only_length(problem) or row_tokens), row_tokens)
    per_row = 1 if padded else max(1, row_tokens // length)
    documents = np.array([row_tokens]) if padded or _unfused(problem) else np.full(per_row, length)
    work = float(reached_work(documents, WHOLE).sum())
    tokens = np.array([float(rows * per_row * length)])
    shares, squares = {WHOLE: WorkShare(0.0, 1.0)}, {WHOLE: float(tokens[0]) * length}
    for reach_ in reaches(problem):
        shares[reach_] = WorkShare(float(reached_work(documents, reach_).sum()), 0.0)
        squares[reach_] = rows * real_squares(np.full(per_row, length), reach_)
    return ScenarioSet(row_tokens, rows, np.full((1, rows), work), tokens, squares, shares)


def _drawn_set(problem: Problem) -> ScenarioSet:
    """Batches drawn from the length distribution."""
    workload = problem.workload
    row_tokens = int(workload.max_sequence_length)
    rows = row_count(problem)
    settings = workload.scenarios
    assert settings is not None, "lengths that vary have scenarios"
    generator = np.random.Generator(np.random.PCG64(settings.seed))
    wanted = reaches(problem)
    works = np.empty((settings.batches, rows))  # longest first
    reached = np.empty((len(wanted), settings.batches, rows))
    tokens = np.empty(settings.batches)
    squares = dict.fromkeys((WHOLE, *wanted), 0.0)
    for index in range(settings.batches):
        if workload.batching[0] == "padded":
            documents = np.minimum(draw_lengths(workload.sequence_lengths, generator, rows), row_tokens)
            row_of = np.arange(rows)
        else:
            documents, row_of = _packed_batch(workload.sequence_lengths, generator, rows, row_tokens)
        tokens[index] = documents.sum()
        for reach_ in squares:
            squares[reach_] += real_squares(documents, reach_) / settings.batches
        if workload.batching[0] == "padded" or _unfused(problem):
            documents, row_of = np.full(rows, row_tokens), np.arange(rows)
        works[index] = np.bincount(row_of, reached_work(documents, WHOLE), minlength=rows)
        order = np.argsort(-works[index], kind="stable")
        works[index] = works[index][order]
        for position, reach_ in enumerate(wanted):
            reached[position, index] = np.bincount(row_of, reached_work(documents, reach_), minlength=rows)[order]
    shares = {reach_: work_share(works, reached[position]) for position, reach_ in enumerate(wanted)}
    return ScenarioSet(row_tokens, rows, works, tokens, squares, {WHOLE: WorkShare(0.0, 1.0), **shares})


def work_share(full: np.ndarray, reached: np.ndarray) -> WorkShare:
    """Least squares of the reached work on the full work, both parts not negative; the mean is kept exactly."""
    mean, reached_mean = float(full.mean()), float(reached.mean())
    spread = float(((full - mean) ** 2).sum())
    slope = float(((full - mean) * (reached - reached_mean)).sum()) / spread if spread > 0.0 else 0.0
    slope = min(max(slope, 0.0), reached_mean / mean)
    return WorkShare(fixed=reached_mean - slope * mean, per_work=slope)


def reached_work(lengths: np.ndarray, reach_: Reach) -> np.ndarray:
    """Attention work of documents within a reach (twice the causal query-key pairs, and the ramp)."""
    tokens = lengths.astype(np.float64)
    window, chunk = reach_
    if chunk is not None:
        rest = np.mod(tokens, chunk)
        squares = (tokens - rest) * chunk + rest**2
    elif window is not None:
        squares = np.where(tokens > window, 2.0 * tokens * window - float(window) ** 2, tokens**2)
    else:
        squares = tokens**2
    return np.asarray(squares + RAMP_TOKENS * tokens)


def real_squares(lengths: np.ndarray, reach_: Reach) -> float:
    """Twice the causal query-key pairs of documents within a reach."""
    return float((reached_work(lengths, reach_) - RAMP_TOKENS * lengths).sum())


def reach(problem: Problem, attention: SoftmaxAttention | MlaAttention) -> Reach:
    """What a layer's attention computes: unfused kernels compute every score, whatever the mask."""
    if attention.kind == "mla" or _unfused(problem):
        return WHOLE
    return attention.window_tokens, attention.chunk_tokens


def reaches(problem: Problem) -> tuple[Reach, ...]:
    """Distinct reaches of the model other than the whole sequence."""
    model = problem.transformer
    found = {
        reach(problem, block.attention)
        for block in model.blocks
        if block.attention is not None and block.attention.kind != "linear"
    }
    return tuple(sorted((r for r in found if r != WHOLE), key=lambda r: (r[0] or 0, r[1] or 0)))


def _unfused(problem: Problem) -> bool:
    return problem.workload.kernels.attention == "unfused"


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
) -> tuple[np.ndarray, np.ndarray]:
    """(documents, row of each): drawn until the batch's tokens are reached, packed longest first into the first row with room.

    What finds none waits for another batch and is left out.
    """
    drawn: list[np.ndarray] = []
    total = 0
    while total < rows * row_tokens:
        block = np.minimum(draw_lengths(lengths, generator, DRAW_BLOCK), row_tokens)
        needed = int(np.searchsorted(np.cumsum(block), rows * row_tokens - total)) + 1
        drawn.append(block[:needed])
        total += int(block[:needed].sum())
    longest_first = np.ascontiguousarray(np.sort(np.concatenate(drawn))[::-1])
    row_of = np.empty(len(longest_first), dtype=np.int64)
    pack_rows(longest_first, row_tokens, rows, row_of)
    kept = row_of >= 0
    return longest_first[kept], row_of[kept]
