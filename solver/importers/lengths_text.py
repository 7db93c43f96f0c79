"""One whole number a line, or CSV: a column of lengths, rows of length and count, or the bins of a histogram."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

import numpy as np

from solver.importers.lengths_binned import bins_of
from solver.importers.lengths_read import LENGTH_NAMES, Gathered, Wish
from solver.importers.lengths_source import Source, refuse, refuse_length
from solver.importers.lengths_table import MAX_LENGTH_TOKENS

_MAX_NUMBER_BYTES: Final = 40
_MAX_CSV_LINE_BYTES: Final = 1 << 16
_ONE: Final = np.ones(1, dtype=np.int64)
_COUNT_NAMES: Final = ("count", "counts", "number", "documents", "frequency", "n")
_LOW_NAMES: Final = ("lo", "low", "lower", "from", "start")
_HIGH_NAMES: Final = ("hi", "high", "upper", "to", "end")
_RANGE_NAMES: Final = ("range", "bin", "bucket")
#: What a heading calls a column: at most three words.
_COLUMN: Final = re.compile(r"[\w.%()#/-]{1,40}(?: [\w.%()#/-]{1,40}){0,2}|")
_RANGE: Final = re.compile(r"[\[(]?\s*(\d{1,19})\s*[,;:-]\s*(\d{1,19})\s*[\])]?")


def read_lines(source: Source, wish: Wish, gathered: Gathered) -> None:
    """One whole number a line; empty lines and those that begin with # are passed over."""
    for number, lines in source.blocks():
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
        if not kept:
            continue
        lengths = _numbers(kept)
        if lengths is None or lengths.min() < 1 or lengths.max() > MAX_LENGTH_TOKENS:
            _refuse_line(number, lines)
        gathered.table.add(lengths)


def _numbers(lines: list[bytes]) -> np.ndarray | None:
    """The lines as int64 [n], or None when one of them is not a whole number."""
    if max(map(len, lines)) > _MAX_NUMBER_BYTES or any(b"\0" in line for line in lines):  # numpy drops trailing zero bytes
        return None
    try:
        numbers: np.ndarray = np.array(lines).astype(np.int64)
    except (ValueError, OverflowError):
        return None
    return numbers


def _refuse_line(number: int, lines: list[bytes]) -> NoReturn:
    """Name the first line that is not a length; there is one."""
    for at, line in enumerate(lines):
        value = _numbers([line]) if line.strip() and not line.lstrip().startswith(b"#") else _ONE
        if value is None:
            refuse("wrong_type", f"line {number + at}: not a whole number")
        if not 1 <= value[0] <= MAX_LENGTH_TOKENS:
            refuse_length(number + at, "line")
    raise AssertionError("every line is a length")


@dataclass
class _Layout:
    """Which column is which; None where there is none."""

    length: int | None = None
    count: int | None = None
    low: int | None = None
    high: int | None = None
    range: int | None = None


@dataclass
class _Rows:
    """Rows read and not yet given away."""

    lengths: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    bins: list[tuple[int, int, int]] = field(default_factory=list)


def read_csv(source: Source, wish: Wish, gathered: Gathered) -> None:
    """CSV or TSV, with or without a heading."""
    layout: _Layout | None = None
    rows = _Rows()
    for number, cells in _cells(source):
        if layout is None:
            heading = not all(_is_number(cell) or _RANGE.fullmatch(cell) for cell in cells if cell)
            layout = _named(cells, wish) if heading else _unnamed(cells, wish)
            if heading:
                continue
        _take(layout, cells, number, rows)
        if len(rows.lengths) >= 1 << 16:
            _flush(rows, gathered)
    _flush(rows, gathered)
    if rows.bins:
        gathered.bins = bins_of(rows.bins)


def _cells(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and stripped cells; comments and empty lines left out."""
    delimiter = "\t" if source.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    for first, lines in source.blocks():
        for at, line in enumerate(lines):
            if not line.strip() or line.startswith(b"#"):
                continue
            if len(line) > _MAX_CSV_LINE_BYTES:
                refuse("too_large", f"line {first + at}: more than {_MAX_CSV_LINE_BYTES} bytes")
            try:
                (cells,) = csv.reader([line.decode("utf-8-sig")], delimiter=delimiter)
            except (UnicodeDecodeError, ValueError, csv.Error):
                refuse("invalid", f"line {first + at}: not a row of CSV in UTF-8")
            yield first + at, [cell.strip() for cell in cells]


def _is_number(cell: str) -> bool:
    return cell.lstrip("+-").isascii() and cell.lstrip("+-").isdigit()


def _named(cells: list[str], wish: Wish) -> _Layout:
    """The columns by the names of the heading."""
    names = [cell.lower() for cell in cells]

    def find(known: tuple[str, ...]) -> int | None:
        return next((names.index(name) for name in known if name in names), None)

    layout = _Layout(find(LENGTH_NAMES), find(_COUNT_NAMES), find(_LOW_NAMES), find(_HIGH_NAMES), find(_RANGE_NAMES))
    if wish.column is not None:
        if wish.column.lower() not in names:
            refuse("unknown_name", "the heading has no such column", tuple(cells) if all(map(_COLUMN.fullmatch, cells)) else None)
        return _Layout(length=names.index(wish.column.lower()), count=layout.count)
    if layout.length is None and layout.count is not None and layout.low is not None and layout.high is not None:
        return layout
    if layout.length is None and layout.count is not None and layout.range is not None:
        return layout
    if layout.length is None and len(cells) == 1:
        return _Layout(length=0)
    if layout.length is None:
        shown = tuple(cells) if all(map(_COLUMN.fullmatch, cells)) else None  # a line of prose is not a heading
        refuse("missing", "no column is called a length; name one as `column`", shown)
    return layout


def _unnamed(cells: list[str], wish: Wish) -> _Layout:
    """The columns by their number: lengths; length and count; low, high and count; range and count."""
    if wish.column is not None:
        refuse("unknown_name", "the file has no heading, so its columns have no names")
    if len(cells) == 1:
        return _Layout(length=0)
    if len(cells) == 2:
        return _Layout(length=0, count=1) if _is_number(cells[0]) else _Layout(range=0, count=1)
    if len(cells) == 3:
        return _Layout(low=0, high=1, count=2)
    return refuse("missing", "without a heading a row is length, or length and count, or low, high and count")


def _take(layout: _Layout, cells: list[str], number: int, rows: _Rows) -> None:
    """One row into `rows`."""

    def value(column: int) -> int:
        if column >= len(cells) or not _is_number(cells[column]) or len(cells[column]) > _MAX_NUMBER_BYTES:
            refuse("wrong_type", f"line {number}: column {column + 1} is not a whole number")
        return int(cells[column])

    count = 1 if layout.count is None else value(layout.count)
    if not 0 <= count < 2**53:
        refuse("out_of_range", f"line {number}: a count is not negative and below 2^53")
    if layout.length is not None:
        length = value(layout.length)
        if not 1 <= length <= MAX_LENGTH_TOKENS:
            refuse_length(number, "line")
        if count:
            rows.lengths.append(length)
            rows.counts.append(count)
    elif layout.range is not None:
        found = _RANGE.fullmatch(cells[layout.range]) if layout.range < len(cells) else None
        if found is None:
            refuse("wrong_type", f"line {number}: column {layout.range + 1} is not a range of whole numbers")
        rows.bins.append((int(found[1]), int(found[2]), count))
    else:
        assert layout.low is not None
        assert layout.high is not None
        rows.bins.append((value(layout.low), value(layout.high), count))


def _flush(rows: _Rows, gathered: Gathered) -> None:
    """Lengths and counts into the table."""
    if rows.lengths:
        gathered.table.add(np.array(rows.lengths, dtype=np.int64), np.array(rows.counts, dtype=np.int64))
        rows.lengths.clear()
        rows.counts.clear()
