"""The bytes of a length file: read in pieces, unpacked when gzipped, never more than a stated number of them.

Refusals say where (row, line or byte) and what is allowed; they never repeat what the file says, which may be private text.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, NoReturn

import numpy as np

from solver.errors import FieldError, InvalidProblem
from solver.importers.lengths_table import MAX_LENGTH_TOKENS

#: Bytes read at a time.
PIECE_BYTES: Final = 1 << 20
#: Bytes of one line of text.
MAX_LINE_BYTES: Final = 1 << 26
GZIP_MAGIC: Final = b"\x1f\x8b"


def refuse(code: str, message: str, allowed: tuple[object, ...] | None = None) -> NoReturn:
    """Raise the typed error of an import; the file is one value, so the pointer is the root."""
    raise InvalidProblem([FieldError("", code, message, allowed)])


@dataclass(frozen=True)
class Source:
    """A file at its start. `name` is used for its ending only; max_bytes bounds what is unpacked from gzip."""

    stream: BinaryIO
    name: str
    max_bytes: int

    def size_bytes(self) -> int:
        """Bytes of the file; the position is the start afterwards."""
        size = self.stream.seek(0, 2)
        self.stream.seek(0)
        return size

    def head(self, count: int) -> bytes:
        """The first bytes; the position is the start afterwards."""
        self.stream.seek(0)
        start = self.stream.read(count)
        self.stream.seek(0)
        return start

    def is_gzip(self) -> bool:
        """Whether the file starts as gzip does."""
        return self.head(2) == GZIP_MAGIC

    def pieces(self) -> Iterator[bytes]:
        """The text of the file in pieces, unpacked."""
        self.stream.seek(0)
        if not self.is_gzip():
            while piece := self.stream.read(PIECE_BYTES):
                yield piece
            return
        total = 0
        with gzip.GzipFile(fileobj=self.stream) as unpacked:
            while piece := _unpacked(unpacked):
                total += len(piece)
                if total > self.max_bytes:
                    refuse("too_large", f"the gzip file unpacks to more than {self.max_bytes} bytes")
                yield piece

    def text(self, most_bytes: int) -> bytes:
        """The whole text, which may have at most that many bytes."""
        parts: list[bytes] = []
        total = 0
        for piece in self.pieces():
            total += len(piece)
            if total > most_bytes:
                refuse("too_large", f"a file of this format may have at most {most_bytes} bytes")
            parts.append(piece)
        return b"".join(parts)

    def blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """The lines in blocks: number of the first line (from 1) and the lines, without their ends."""
        rest, number = b"", 1
        for piece in self.pieces():
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            if len(rest) > MAX_LINE_BYTES:
                refuse("too_large", f"line {number + len(lines)}: more than {MAX_LINE_BYTES} bytes")
            if lines:
                if number == 1:
                    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                yield number, lines
                number += len(lines)
        if rest:
            yield number, [rest.removeprefix(codecs.BOM_UTF8) if number == 1 else rest]


def _unpacked(unpacked: gzip.GzipFile) -> bytes:
    try:
        return unpacked.read(PIECE_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidProblem([FieldError("", "invalid", "the gzip file is damaged or cut short")]) from error


def refuse_length(place: int, what: str) -> NoReturn:
    """The length at that place is not one."""
    refuse("out_of_range", f"{what} {place}: a length is a whole number of tokens from 1 to {MAX_LENGTH_TOKENS}")


def checked(lengths: np.ndarray, first: int, what: str) -> np.ndarray:
    """int64 lengths [n], each in 1..MAX_LENGTH_TOKENS; the first that is not is named by its place (`what` number)."""
    wrong = (lengths < 1) | (lengths > MAX_LENGTH_TOKENS)
    if wrong.any():
        refuse_length(first + int(np.flatnonzero(wrong)[0]), what)
    return lengths.astype(np.int64, copy=False)


def whole(values: np.ndarray, first: int, what: str) -> np.ndarray:
    """Numbers [n] of any kind as int64; a NaN, an infinity or a fraction is refused by its place."""
    if values.dtype.kind == "f":
        fine = np.isfinite(values) & (np.floor(values) == values) & (np.abs(values) < 2.0**62)
        if not fine.all():
            refuse("wrong_type", f"{what} {first + int(np.flatnonzero(~fine)[0])}: not a whole number")
    if values.dtype.kind == "u" and len(values) and int(values.max()) > MAX_LENGTH_TOKENS:
        at = int(np.flatnonzero(values > MAX_LENGTH_TOKENS)[0])
        refuse("out_of_range", f"{what} {first + at}: more than {MAX_LENGTH_TOKENS} tokens")
    return values.astype(np.int64)
