"""Time as the store keeps it: whole microseconds since 1970 (UTC), the same on both databases."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]


def now_us() -> int:
    """The wall clock in microseconds."""
    return time.time_ns() // 1000


def iso_time(moment_us: int) -> str:
    """RFC 3339 text of a stored moment."""
    return datetime.fromtimestamp(moment_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
