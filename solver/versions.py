"""Versions that every digest and every plan carries: the same question to other versions is another question."""

from __future__ import annotations

from typing import Final

SOLVER: Final = "0.1.0"
COST_MODEL: Final = "1"
DATA: Final = "2026-12"


def versions() -> dict[str, str]:
    """The `versions` object of digests and plans."""
    return {"solver": SOLVER, "cost_model": COST_MODEL, "data": DATA}
