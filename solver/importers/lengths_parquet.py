"""Parquet: an integer column of lengths, a list column of tokens, or a text column measured in characters.

Needs pyarrow (an extra). Only the one column is read, in batches; of lists and texts only their sizes are kept.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

from solver.importers.lengths_read import LENGTH_NAMES, TEXT_NAMES, TOKEN_NAMES, Gathered, Wish
from solver.importers.lengths_source import Source, checked, refuse, whole

_BATCH_ROWS: Final = 1 << 14


def _module(name: str) -> Any:
    """A module of pyarrow, which is an optional dependency."""
    try:
        return importlib.import_module(name)
    except ImportError:
        refuse("not_supported", "Parquet needs pyarrow, which is not installed: pip install 'parallel-plan-service[parquet]'")


def read_parquet(source: Source, wish: Wish, gathered: Gathered) -> None:
    """The wished column, else the first that is called like a length, tokens or text."""
    arrow, parquet, compute = _module("pyarrow"), _module("pyarrow.parquet"), _module("pyarrow.compute")
    source.stream.seek(0)
    first = 1
    try:
        file = parquet.ParquetFile(source.stream)
        column = _column(file.schema_arrow, arrow, wish)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[column], use_threads=False):
            values = batch.column(0)
            if values.null_count:
                refuse("missing", f"rows {first} to {first + len(values) - 1}: the column has empty cells")
            gathered.table.add(checked(_lengths(values, arrow, compute, wish, gathered, first), first, "row"))
            first += len(values)
    except (arrow.ArrowException, OSError) as error:
        refuse("invalid", f"the Parquet file is damaged ({type(error).__name__})")


def _column(schema: Any, arrow: Any, wish: Wish) -> str:
    """The name of the column to read."""
    names = tuple(str(name) for name in schema.names)
    if wish.column is not None:
        if wish.column not in names:
            refuse("unknown_name", "the file has no such column", names)
        return wish.column
    for known in (*LENGTH_NAMES, *TOKEN_NAMES, *TEXT_NAMES):
        if known in names:
            return known
    return refuse("missing", "no column is called a length, tokens or text; name one as `column`", names)


def _lengths(values: Any, arrow: Any, compute: Any, wish: Wish, gathered: Gathered, first: int) -> np.ndarray:
    """Tokens of every row of a batch, int64 [n]."""
    kind = values.type
    if arrow.types.is_integer(kind) or arrow.types.is_floating(kind):
        return whole(np.asarray(values.to_numpy(zero_copy_only=False)), first, "row")
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        if arrow.types.is_integer(kind.value_type):
            return whole(np.asarray(compute.list_value_length(values).to_numpy(zero_copy_only=False)), first, "row")
        refuse("wrong_type", "the lists of the column hold no tokens (integers); name another column")
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        if wish.characters_per_token is None:
            refuse("missing", "the column holds text; state how many characters make a token (characters_per_token)")
        gathered.note_estimate(wish.characters_per_token)
        characters = np.asarray(compute.utf8_length(values).to_numpy(zero_copy_only=False))
        return np.maximum(np.ceil(characters / wish.characters_per_token), 1).astype(np.int64)
    return refuse("wrong_type", "the column holds neither lengths, tokens nor text")
