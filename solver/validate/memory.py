"""Predicted memory in the terms of a reading: what was read (`mem_kind`), where, and in which unit."""

from __future__ import annotations

from dataclasses import dataclass

from solver.balance.ledger import Assembled
from solver.evaluate import memory_entries
from solver.plan import MemoryEntry
from solver.validate.rows import Row

GIB = float(2**30)
GB = 1.0e9
FIRST_STAGE_READ = "incl. ~1.1 GB CUDA context"
"""the V100 tables show the first stage: their readings follow its checkpoints, not the logits of the last"""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one layout: the worst rank's device bytes, the verdict, and all entries."""

    peak_bytes: float
    fits: bool
    safe: bool
    entries: tuple[MemoryEntry, ...]


def memory_of(assembled: Assembled) -> Memory:
    """Memory of a priced layout."""
    entries = memory_entries(assembled)
    verdicts = {entry.verdict for entry in entries}
    return Memory(
        peak_bytes=max(entry.device for entry in entries),
        fits="no" not in verdicts,
        safe=verdicts == {"safe"},
        entries=entries,
    )


def measured_bytes(row: Row) -> float | None:
    """The reading of a run that ended well (readings of failed runs precede the failure)."""
    if not row.peak_mem_gb or row.status not in (None, "ok"):
        return None
    return row.peak_mem_gb * (GIB if "gib" in (row.mem_kind or "").lower() else GB)


def reading_kind(row: Row) -> str:
    """`allocated`, `reserved` or `device`: what the source's tool counts."""
    text = (row.mem_kind or "").lower()
    return next((kind for kind in ("allocated", "reserved") if kind in text), "device")


def as_read(row: Row, memory: Memory) -> float:
    """The predicted value of the row's reading."""
    kind, text = reading_kind(row), row.mem_kind or ""
    stages = [entry.stage for entry in memory.entries]
    chosen = memory.entries
    if "first/last" in text:
        chosen = tuple(entry for entry in memory.entries if entry.stage in (min(stages), max(stages)))
    elif FIRST_STAGE_READ in text:
        chosen = tuple(entry for entry in memory.entries if entry.stage == min(stages))
    return max(float(getattr(entry, kind)) for entry in chosen)
