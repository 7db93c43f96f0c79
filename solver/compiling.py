"""Compiled functions whose disk cache knows the source of every kernel.

numba looks up a cached function by the file that defines it; what it calls in other files was compiled into it and may have
changed since. Here the cache is asked with a digest of all these sources, so no machine code outlives its source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., object])

MARK = b"solver.compiling"
"""what a file with compiled functions imports"""
IMPORT = re.compile(r"^from (solver(?:\.\w+)*) import (\([^)]*\)|[^\n(]+)", re.MULTILINE)


def compiled(function: Kernel) -> Kernel:
    """`numba.njit(cache=True, error_model="numpy")` with the type of the Python function kept."""
    return cast(Kernel, stamped(njit(cache=True, error_model="numpy")(function), sources_digest()))


def inlined(function: Kernel) -> Kernel:
    """As `compiled`, written into its callers: for functions of innermost loops, whose calls cost as much as their work."""
    return cast(Kernel, stamped(njit(cache=True, error_model="numpy", forceinline=True)(function), sources_digest()))


def stamped(dispatcher: Any, digest: str) -> Any:
    """Let the dispatcher's cached machine code count only together with `digest`; without a disk cache nothing is to do."""
    index = getattr(dispatcher._cache, "_cache_file", None)
    if index is not None:
        index._source_stamp = (index._source_stamp, digest)
    return dispatcher


@cache
def sources_digest() -> str:
    """SHA-256 of all files of this package that hold compiled functions, and of what they import from it."""
    root = Path(__file__).parent
    waiting = [path for path in sorted(root.rglob("*.py")) if MARK in path.read_bytes()]
    contents: dict[Path, bytes] = {}
    while waiting:
        path = waiting.pop()
        if path not in contents:
            contents[path] = path.read_bytes()
            waiting += _imported(root, contents[path].decode())
    digest = hashlib.sha256()
    for path in sorted(contents):
        digest.update(contents[path])
    return digest.hexdigest()


def _imported(root: Path, source: str) -> list[Path]:
    """Files a module imports from: `from solver.a.b import c` is a/b.py, a/b/__init__.py or a/b/c.py."""
    found = []
    for module, names in IMPORT.findall(source):
        base = root.joinpath(*module.split(".")[1:])
        candidates = [base.with_suffix(".py"), base / "__init__.py"]
        candidates += [base / f"{name.strip()}.py" for name in names.strip("()").split(",")]
        found += [path for path in candidates if path.is_file()]
    return found
