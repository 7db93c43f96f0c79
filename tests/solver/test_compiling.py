"""Machine code kept on disk counts only together with the sources that it was compiled from."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from solver.compiling import IMPORT, sources_digest, stamped
from solver.cost.time_kernels import operation_seconds

FUNCTION = """
def twice(value):
    return 2 * value
"""


@pytest.fixture
def function(tmp_path: Path):  # type: ignore[no-untyped-def]
    path = tmp_path / "twice_module.py"
    path.write_text(FUNCTION)
    space: dict[str, object] = {}
    exec(compile(FUNCTION, str(path), "exec"), space)
    return space["twice"]


def test_another_digest_compiles_again(function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))

    def misses(digest: str) -> int:
        dispatcher = stamped(numba.njit(cache=True)(function), digest)
        assert dispatcher(21) == 42
        return sum(dispatcher.stats.cache_misses.values())

    assert misses("first") == 1
    assert misses("first") == 0
    assert misses("second") == 1


def test_the_digest_covers_what_kernels_import() -> None:
    assert operation_seconds._cache._cache_file._source_stamp[1] == sources_digest()  # type: ignore[attr-defined]
    names = IMPORT.findall("from solver.cost.columns import (\n    A,\n    B,\n)\nfrom solver.cost import columns\n")
    assert [module for module, _ in names] == ["solver.cost.columns", "solver.cost"]
