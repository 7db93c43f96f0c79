"""How late the event loop is: a task that sleeps a fixed time and notes how much longer it slept.

Of the delay it also tells how much this process can have caused itself: at most the processor time that all its threads used
meanwhile. The rest is other processes' work on a busy machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

INTERVAL_S = 0.025


class LoopDelay:
    """Runs from `start` to `stop`."""

    def __init__(self, note: Callable[[float, float], None]) -> None:
        self._note = note
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Inside the loop that is watched."""
        self._task = asyncio.create_task(self._work())

    def stop(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s, used_s = loop.time(), time.process_time()
            await asyncio.sleep(INTERVAL_S)
            late_s = max(0.0, loop.time() - began_s - INTERVAL_S)
            self._note(late_s, min(late_s, time.process_time() - used_s))
