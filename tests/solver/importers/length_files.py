"""Length files made for the tests, as the tools that own the formats write them."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np

from solver.importers import ImportedLengths, Wish, import_lengths

TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}


def read(raw: bytes, name: str = "lengths", **wish: Any) -> ImportedLengths:
    """The import of one file."""
    return import_lengths([(name, io.BytesIO(raw))], Wish(**wish))


def counts_of(imported: ImportedLengths) -> dict[int, int]:
    """Documents by length."""
    return {length: count for length, count in imported.sequence_lengths["counts"]}


def mmap_idx(
    lengths: list[int],
    code: int = 8,
    ends: list[int] | None = None,
    modes: bool = False,
    token_bytes: int | None = None,
    **header: int,
) -> bytes:
    """A Megatron index as core/datasets/indexed_dataset.py writes it."""
    sizes = np.array(lengths, dtype="<i4")
    unit = token_bytes or TOKEN_BYTES[code]
    offsets = np.concatenate(([0], np.cumsum(sizes.astype(np.int64) * unit)))[:-1].astype("<i8")
    boundaries = np.array([0, *(ends or range(1, len(lengths) + 1))], dtype="<i8")
    head = b"MMIDIDX\x00\x00" + struct.pack(
        "<QBQQ", header.get("version", 1), header.get("code", code), header.get("sequences", len(lengths)), len(boundaries)
    )
    return head + sizes.tobytes() + offsets.tobytes() + boundaries.tobytes() + (b"\x00" * len(lengths) if modes else b"")


def plain_idx(lengths: list[int], code: int = 4, element_bytes: int = 4) -> bytes:
    """The older index of data sets that are not memory-mapped."""
    sizes = np.array(lengths, dtype="<i8")
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    boundaries = np.arange(len(lengths) + 1, dtype="<i8")
    head = b"TNTIDX\x00\x00" + struct.pack("<QQQQQQ", 1, code, element_bytes, len(lengths), len(lengths), len(boundaries))
    dims = np.arange(len(lengths) + 1, dtype="<i8")
    return head + dims.tobytes() + offsets.astype("<i8").tobytes() + sizes.tobytes() + boundaries.tobytes()


def npy(values: Any, dtype: str) -> bytes:
    """An .npy file."""
    out = io.BytesIO()
    np.save(out, np.array(values, dtype=dtype))
    return out.getvalue()
