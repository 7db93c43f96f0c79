"""NumPy .npy: lengths [n], or rows of length and count [n, 2]; the header is read without pickle, the data in pieces."""

from __future__ import annotations

import ast
import math
import re
from typing import Final

import numpy as np

from solver.importers.lengths_read import Gathered, Wish
from solver.importers.lengths_source import PIECE_BYTES, Source, checked, refuse, whole

_MAX_HEADER_BYTES: Final = 10_000
#: Integers and floats of at most 8 bytes.
_TYPE: Final = re.compile(r"[<>=|]?(?:[iu][1248]|f[248])")


def read_npy(source: Source, wish: Wish, gathered: Gathered) -> None:
    """Shape, type and size are checked before any data is read."""
    if wish.column is not None:
        refuse("unknown_name", "an .npy file has no named columns")
    source.stream.seek(0)
    shape, fortran, dtype = _header(source)
    paired = len(shape) == 2 and shape[1] == 2 and not fortran
    if len(shape) != 1 and not paired:
        refuse("wrong_type", "the array must be [n] lengths or, in C order, [n, 2] rows of length and count")
    start = source.stream.tell()
    there, stated = source.stream.seek(0, 2) - start, math.prod(shape) * dtype.itemsize
    if there != stated:
        refuse("invalid", f"the header states {stated} bytes of data, the file has {there}")
    source.stream.seek(start)
    step = 2 if paired else 1
    first = 1
    while raw := source.stream.read(PIECE_BYTES * dtype.itemsize // 8 * step):
        values = whole(np.frombuffer(raw, dtype=dtype), (first - 1) * step + 1, "value")
        _take(values, first, paired, gathered)
        first += len(values) // step


def _take(values: np.ndarray, first: int, paired: bool, gathered: Gathered) -> None:
    if not paired:
        gathered.table.add(checked(values, first, "value"))
        return
    lengths, counts = checked(values[0::2], first, "row"), values[1::2]
    if (counts < 1).any() or (counts > 2**53).any():
        refuse(
            "out_of_range", f"row {first + int(np.flatnonzero((counts < 1) | (counts > 2**53))[0])}: a count is from 1 to 2^53"
        )
    gathered.table.add(lengths, counts)


def _header(source: Source) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type: a dictionary in the notation of Python behind 8 bytes of magic and version and its size."""
    start = source.stream.read(8)
    if start[6:8] not in (b"\x01\x00", b"\x02\x00"):
        refuse("not_supported", "only versions 1.0 and 2.0 of the .npy format are read")
    width = 2 if start[6] == 1 else 4
    size = int.from_bytes(source.stream.read(width), "little")
    text = source.stream.read(min(size, _MAX_HEADER_BYTES + 1))
    if not 0 < size == len(text) <= _MAX_HEADER_BYTES:
        refuse("invalid", "the header of the .npy file is cut short or too long")
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
        shape, fortran, descr = header["shape"], header["fortran_order"], header["descr"]
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError):
        refuse("invalid", "the header of the .npy file cannot be read")
    if not isinstance(shape, tuple) or not all(type(length) is int and 0 <= length < 2**62 for length in shape):
        refuse("invalid", "the header of the .npy file has no usable shape")
    if not isinstance(descr, str) or not _TYPE.fullmatch(descr):
        refuse("wrong_type", "the array must hold integers or floats of at most 8 bytes", ("int32", "int64", "float64"))
    return shape, bool(fortran), np.dtype(descr)
