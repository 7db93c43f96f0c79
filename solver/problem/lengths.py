"""How long the sequences are: one length, counts, a histogram, a lognormal, or joint samples of several modules."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from solver.problem.spec import MAX_INTEGER, Count, Name, Natural, Quantity, Sized, Spec, one_of

MAX_DISTINCT_LENGTHS: Final = 65536
MAX_LENGTH_TOKENS: Final = 1 << 30

Length = Annotated[Count, Field(le=MAX_LENGTH_TOKENS)]


class Histogram(Spec):
    """Counts per bin; bin i holds lengths in (edges[i], edges[i + 1]]."""

    edges: Annotated[tuple[Annotated[Natural, Field(le=MAX_LENGTH_TOKENS)], ...], Sized(2)]
    counts: Annotated[tuple[Natural, ...], Sized(1)]

    @model_validator(mode="after")
    def _shape(self) -> Histogram:
        if len(self.counts) > MAX_DISTINCT_LENGTHS:
            raise PydanticCustomError("too_large", "more than {limit} bins", {"limit": MAX_DISTINCT_LENGTHS})
        if len(self.edges) != len(self.counts) + 1:
            raise PydanticCustomError("conflict", "edges must be one longer than counts")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise PydanticCustomError("out_of_range", "edges must increase")
        if not 0 < sum(self.counts) <= MAX_INTEGER:
            raise PydanticCustomError("out_of_range", "the counts must add up to at least 1 and at most 2^53 - 1")
        return self


class Lognormal(Spec):
    """Lengths exp(N(ln median, sigma^2)) in tokens; draws above `max` become `max`."""

    median: Annotated[Quantity, Field(ge=1, le=MAX_LENGTH_TOKENS)]
    sigma: Annotated[Quantity, Field(le=16)]
    max: Length


Sample = tuple[Annotated[dict[Name, Natural], Sized(1)], Count]


class SequenceLengths(Spec):
    """Exactly one of the forms. counts are [length in tokens, number of documents]."""

    constant: Length | None = None
    counts: Annotated[tuple[tuple[Length, Count], ...], Sized(1)] | None = None
    histogram: Histogram | None = None
    lognormal: Lognormal | None = None
    samples: Annotated[tuple[Sample, ...], Sized(1)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> SequenceLengths:
        one_of(self, ("constant", "counts", "histogram", "lognormal", "samples"), "sequence_lengths")
        rows = self.counts if self.counts is not None else self.samples
        if self.counts is not None and len({length for length, _ in self.counts}) > MAX_DISTINCT_LENGTHS:
            raise PydanticCustomError("too_large", "more than {limit} distinct lengths", {"limit": MAX_DISTINCT_LENGTHS})
        if self.samples is not None and len(self.samples) > MAX_DISTINCT_LENGTHS:
            raise PydanticCustomError("too_large", "more than {limit} samples", {"limit": MAX_DISTINCT_LENGTHS})
        if rows is not None and sum(count for _, count in rows) > MAX_INTEGER:
            raise PydanticCustomError("out_of_range", "the counts add up to more than 2^53 - 1")
        return self

    @property
    def longest_tokens(self) -> int:
        """The longest length that can occur (0 for samples: it depends on the last module)."""
        if self.constant is not None:
            return self.constant
        if self.counts is not None:
            return max(length for length, _ in self.counts)
        if self.histogram is not None:
            return max(edge for edge, count in zip(self.histogram.edges[1:], self.histogram.counts, strict=True) if count)
        return self.lognormal.max if self.lognormal is not None else 0

    @property
    def is_constant(self) -> bool:
        """Only one length can occur, so one scenario says everything."""
        if self.counts is not None:
            return len({length for length, _ in self.counts}) == 1
        return self.constant is not None
