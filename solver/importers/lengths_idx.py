"""Megatron index files (.idx): lengths of documents without the .bin file, read in pieces.

MMIDIDX (Megatron-LM, core/datasets/indexed_dataset.py): 9 bytes magic, u64 version 1, u8 type code, u64 sequences, u64
documents + 1, then int32 lengths [sequences], int64 byte offsets [sequences], int64 document boundaries [documents + 1] and, in
multimodal sets, int8 modes [sequences]. TNTIDX (the older, not memory-mapped form): 8 bytes magic, u64 version 1, u64 type code,
u64 element size, u64 sequences, u64 sizes, u64 boundaries, then int64 arrays of dimensions, offsets, sizes and boundaries.
All little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.importers.lengths_read import Gathered, Wish
from solver.importers.lengths_source import Source, checked, refuse

MMAP_MAGIC: Final = b"MMIDIDX\x00\x00"
PLAIN_MAGIC: Final = b"TNTIDX\x00\x00"
#: Bytes of one token by type code. Codes 6 and 7 changed places between releases (float64 and float32, or float32 and float64).
_TOKEN_BYTES: Final = {1: (1,), 2: (1,), 3: (2,), 4: (4,), 5: (8,), 6: (8, 4), 7: (4, 8), 8: (2,)}
_STEP: Final = 1 << 18
_MMAP_HEADER: Final = struct.Struct("<QBQQ")
_PLAIN_HEADER: Final = struct.Struct("<QQQQQQ")


@dataclass(frozen=True)
class _Index:
    """Where the arrays lie. offset_unit: bytes a step of an offset stands for, None when it is the size of a token."""

    sequences: int
    boundaries: int
    lengths_at: int
    length_type: str
    offsets_at: int
    boundaries_at: int
    offsets_in_tokens: bool
    token_bytes: tuple[int, ...]


def read_idx(source: Source, wish: Wish, gathered: Gathered) -> None:
    """Lengths of whole documents; the header must agree with the file, the offsets with the lengths."""
    if wish.column is not None:
        refuse("unknown_name", "a Megatron index has no named columns")
    size = source.size_bytes()
    magic = source.stream.read(len(PLAIN_MAGIC))
    if magic == PLAIN_MAGIC:
        index = _plain(source, size)
    elif magic == MMAP_MAGIC[:8] and source.stream.read(1) == MMAP_MAGIC[8:]:
        index = _mmap(source, size, gathered)
    else:
        refuse("invalid", "not a Megatron index: the magic bytes are wrong")
    _check_offsets(source, index, gathered)
    if index.boundaries == index.sequences + 1:
        for _ in _boundaries(source, index):  # increasing from 0 to the last: every document is one sequence
            pass
        for first, lengths in _lengths(source, index):
            gathered.table.add(checked(lengths, first + 1, "sequence"))
    else:
        _add_documents(source, index, gathered)


def _unpack(source: Source, form: struct.Struct) -> tuple[int, ...]:
    raw = source.stream.read(form.size)
    if len(raw) < form.size:
        refuse("invalid", "the index is cut short within its header")
    return form.unpack(raw)


def _check_header(version: int, code: int, sequences: int, boundaries: int) -> None:
    if version != 1:
        refuse("not_supported", "only version 1 of the Megatron index is known; other byte orders are not read", (1,))
    if code not in _TOKEN_BYTES:
        refuse("invalid", "the type code of the index is not known", tuple(_TOKEN_BYTES))
    if not 1 <= sequences < 2**40 or not 1 <= boundaries <= sequences + 1:
        refuse("invalid", "the numbers of sequences and documents in the header do not agree")


def _mmap(source: Source, size: int, gathered: Gathered) -> _Index:
    version, code, sequences, boundaries = _unpack(source, _MMAP_HEADER)
    _check_header(version, code, sequences, boundaries)
    start = len(MMAP_MAGIC) + _MMAP_HEADER.size
    offsets_at = start + 4 * sequences
    boundaries_at = offsets_at + 8 * sequences
    end = boundaries_at + 8 * boundaries
    if size not in (end, end + sequences):
        refuse("invalid", f"the header asks for {end} bytes (or {end + sequences} with modes), the file has {size}")
    if size == end + sequences:
        gathered.warn("the index is of a multimodal set: sequences of all modes are counted as tokens")
    return _Index(sequences, boundaries, start, "<i4", offsets_at, boundaries_at, False, _TOKEN_BYTES[code])


def _plain(source: Source, size: int) -> _Index:
    version, code, element_bytes, sequences, sizes, boundaries = _unpack(source, _PLAIN_HEADER)
    _check_header(version, code, sequences, boundaries)
    if sizes != sequences:
        refuse("not_supported", "only indexes of one-dimensional sequences are read")
    if element_bytes not in _TOKEN_BYTES[code]:
        refuse("invalid", "element size and type code of the index do not agree", _TOKEN_BYTES[code])
    offsets_at = len(PLAIN_MAGIC) + _PLAIN_HEADER.size + 8 * (sequences + 1)
    lengths_at = offsets_at + 8 * (sequences + 1)
    boundaries_at = lengths_at + 8 * sequences
    if size != boundaries_at + 8 * boundaries:
        refuse("invalid", f"the header asks for {boundaries_at + 8 * boundaries} bytes, the file has {size}")
    return _Index(sequences, boundaries, lengths_at, "<i8", offsets_at, boundaries_at, True, (element_bytes,))


def _array(source: Source, at: int, kind: str, first: int, count: int) -> np.ndarray:
    """`count` items from item `first` of the array that starts at byte `at`, as int64."""
    dtype = np.dtype(kind)
    source.stream.seek(at + first * dtype.itemsize)
    raw = source.stream.read(count * dtype.itemsize)
    if len(raw) < count * dtype.itemsize:
        refuse("invalid", "the index ended while it was read")
    return np.frombuffer(raw, dtype=dtype).astype(np.int64)


def _lengths(source: Source, index: _Index) -> Iterator[tuple[int, np.ndarray]]:
    """The lengths of the sequences in pieces, with the number of the first (from 0)."""
    for first in range(0, index.sequences, _STEP):
        yield first, _array(source, index.lengths_at, index.length_type, first, min(_STEP, index.sequences - first))


def _check_offsets(source: Source, index: _Index, gathered: Gathered) -> None:
    """Every sequence starts where the one before ends, for one of the token sizes that the type code may mean."""
    possible = (1,) if index.offsets_in_tokens else index.token_bytes
    previous_end = dict.fromkeys(possible, 0)
    for first, lengths in _lengths(source, index):
        if (lengths < 0).any():
            refuse("out_of_range", f"sequence {first + 1 + int(np.flatnonzero(lengths < 0)[0])}: a negative length")
        starts = _array(source, index.offsets_at, "<i8", first, len(lengths))
        for unit in tuple(previous_end):
            ends = previous_end[unit] + np.cumsum(lengths * unit)
            if not np.array_equal(starts, ends - lengths * unit):
                del previous_end[unit]
            else:
                previous_end[unit] = int(ends[-1])
        if not previous_end:
            refuse("invalid", f"sequences {first + 1} to {first + len(lengths)}: offsets and lengths do not agree")
    if len(index.token_bytes) > 1:
        gathered.warn(
            f"the type code means other types in other releases; the offsets say {next(iter(previous_end))} bytes a token"
        )


def _add_documents(source: Source, index: _Index, gathered: Gathered) -> None:
    """Documents of several sequences: the sum over the sequences between two boundaries."""
    gathered.warn("documents of several sequences were added up")
    ends = _boundaries(source, index)
    document, reached, at_last = 0, 0, 0
    pending = next(ends, None)
    for first, lengths in _lengths(source, index):
        cumulative = reached + np.cumsum(lengths)
        while pending is not None:
            inside = pending[pending <= first + len(lengths)]
            if len(inside):
                sums = cumulative[inside - first - 1]
                gathered.table.add(checked(np.diff(sums, prepend=at_last), document + 1, "document"))
                document, at_last = document + len(inside), int(sums[-1])
            if len(inside) < len(pending):
                pending = pending[len(inside) :]
                break
            pending = next(ends, None)
        reached = int(cumulative[-1])


def _boundaries(source: Source, index: _Index) -> Iterator[np.ndarray]:
    """Ends of documents in pieces, checked to start at 0, to increase and to end with the last sequence."""
    previous = 0
    if _array(source, index.boundaries_at, "<i8", 0, 1)[0] != 0 or index.boundaries < 2:
        refuse("invalid", "the document boundaries do not start at 0")
    for first in range(1, index.boundaries, _STEP):
        ends = _array(source, index.boundaries_at, "<i8", first, min(_STEP, index.boundaries - first))
        if (np.diff(ends, prepend=previous) < 1).any() or ends[-1] > index.sequences:
            refuse("invalid", f"document boundaries {first} to {first + len(ends) - 1} do not increase within the sequences")
        previous = int(ends[-1])
        yield ends
    if previous != index.sequences:
        refuse("invalid", "the document boundaries do not end with the last sequence")
