"""Files of sequence lengths -> the `sequence_lengths` of a problem, with what they are like.

The format is told by its first bytes, then by the ending of the name, then by the first character. One module a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from solver.importers.lengths_figures import against_limit, statistics
from solver.importers.lengths_idx import MMAP_MAGIC, PLAIN_MAGIC, read_idx
from solver.importers.lengths_json import read_json
from solver.importers.lengths_jsonl import read_jsonl
from solver.importers.lengths_npy import read_npy
from solver.importers.lengths_parquet import read_parquet
from solver.importers.lengths_read import Gathered, Wish
from solver.importers.lengths_source import Source, refuse
from solver.importers.lengths_table import MAX_DISTINCT_LENGTHS, MAX_LENGTH_TOKENS, LengthTable, merged
from solver.importers.lengths_text import read_csv, read_lines

#: Most bytes that a gzip file may unpack to.
MAX_UNPACKED_BYTES: Final = 1 << 36
Reader = Callable[[Source, Wish, Gathered], None]
_READERS: Final[dict[str, Reader]] = {
    "megatron-idx": read_idx,
    "parquet": read_parquet,
    "npy": read_npy,
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": read_csv,
    "lines": read_lines,
}
_MAGIC: Final = (
    (MMAP_MAGIC[:8], "megatron-idx"),
    (PLAIN_MAGIC, "megatron-idx"),
    (b"\x93NUMPY", "npy"),
    (b"PAR1", "parquet"),
)
_BINARY_ENDINGS: Final = {".idx": "a Megatron index", ".npy": "a NumPy array", ".parquet": "a Parquet file"}
_TEXT_ENDINGS: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "lines",
}


@dataclass(frozen=True)
class ImportedLengths:
    """`sequence_lengths` is that of a problem; `statistics` and `limit` describe it (limit: at the maximum, if one was given
    or at the longest); `max_relative_error` is what merging to the problem's number of distinct lengths added to a length."""

    formats: tuple[str, ...]
    sequence_lengths: dict[str, Any]
    max_sequence_length: int
    truncate: bool
    statistics: dict[str, Any]
    limit: dict[str, Any]
    max_relative_error: float
    warnings: tuple[str, ...]


def import_lengths(
    files: Iterable[tuple[str, BinaryIO]], wish: Wish | None = None, max_unpacked_bytes: int = MAX_UNPACKED_BYTES
) -> ImportedLengths:
    """The lengths of all files together (name, seekable binary stream); raises InvalidProblem."""
    wish = wish or Wish()
    _check_wish(wish)
    gathered = Gathered(LengthTable(wish.max_tokens))
    formats: list[str] = []
    histograms = 0
    for name, stream in files:
        source = Source(stream, name, max_unpacked_bytes)
        formats.append(_format(source))
        gathered.bins = None
        _READERS[formats[-1]](source, wish, gathered)
        if gathered.bins is not None:
            histograms += 1
            gathered.bins.fill(gathered.table)
    if not gathered.table.documents:
        refuse("missing", "no lengths were found")
    if gathered.table.documents > 2**53 - 1:
        refuse("too_large", "more than 2^53 - 1 documents")
    only_bins = gathered.bins if histograms == len(formats) == 1 else None
    if histograms and only_bins is None:
        gathered.warn("histograms beside other files: their documents stand at the upper edges of the bins")
    return _answer(gathered, only_bins is not None, formats, wish)


def _check_wish(wish: Wish) -> None:
    if wish.max_tokens is not None and not 1 <= wish.max_tokens <= MAX_LENGTH_TOKENS:
        refuse("out_of_range", f"the maximum is from 1 to {MAX_LENGTH_TOKENS} tokens")
    if wish.characters_per_token is not None and not 0 < wish.characters_per_token <= 1000:
        refuse("out_of_range", "characters_per_token is above 0 and at most 1000")


def _answer(gathered: Gathered, binned: bool, formats: list[str], wish: Wish) -> ImportedLengths:
    table = gathered.table
    limit_tokens = wish.max_tokens or table.longest
    error = 0.0
    if binned and gathered.bins is not None:
        form: dict[str, Any] = {"histogram": gathered.bins.document()}
    else:
        lengths, counts, error = merged(*table.rows(), MAX_DISTINCT_LENGTHS, limit_tokens)
        form = {"counts": [list(row) for row in zip(lengths.tolist(), counts.tolist(), strict=True)]}
        if error:
            gathered.warn(f"{MAX_DISTINCT_LENGTHS} distinct lengths are kept: others were rounded up by at most {error:.2%}")
    return ImportedLengths(
        formats=tuple(formats),
        sequence_lengths=form,
        max_sequence_length=limit_tokens,
        truncate=table.longest > limit_tokens,
        statistics=statistics(table),
        limit=against_limit(table, limit_tokens),
        max_relative_error=error,
        warnings=tuple(gathered.warnings),
    )


def _format(source: Source) -> str:
    """The format of a file."""
    head = source.head(64)
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    lower = source.name.lower().removesuffix(".gz")
    for ending, what in _BINARY_ENDINGS.items():
        if lower.endswith(ending):
            reason = "it is gzipped; unpack it first" if source.is_gzip() else "the magic bytes are wrong"
            refuse("invalid", f"the file is not {what} as its name says: {reason}")
    for ending, name in _TEXT_ENDINGS.items():
        if lower.endswith(ending):
            return name
    return _by_first_line(source)


def _by_first_line(source: Source) -> str:
    """Text of unknown ending: numbers, CSV, JSON or JSON Lines."""
    for _, lines in source.blocks():
        for line in lines:
            start = line.strip()
            if not start or start.startswith(b"#"):
                continue
            if start[:1] == b"{":
                return "jsonl" if start[-1:] == b"}" else "json"
            if start[:1] == b"[":
                return "json"
            return "csv" if b"," in start else "lines"
    return refuse("missing", "no lengths were found")
