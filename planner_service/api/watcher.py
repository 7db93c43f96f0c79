"""Tells calls that wait for searches when those have changed: one small query for all of them, while anybody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from anyio import to_thread

from planner_service.states import State

LOG = logging.getLogger("planner.api")
POLL_S = 0.1
Latest = Callable[[Iterable[str]], dict[str, tuple[State, int]]]


class Watcher:
    """Searches are watched by the number of their newest event."""

    def __init__(self, latest: Latest) -> None:
        self._latest = latest
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None

    async def changed(self, search_id: str, seq: int, timeout_s: float) -> bool:
        """Whether the search has an event after `seq` (or is no more) before the time is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = (search_id, seq)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(future, None)
        return True

    async def _poll(self) -> None:
        """Until nobody waits; a database that does not answer is asked again."""
        try:
            while self._waiting:
                await asyncio.sleep(POLL_S)
                await self._look()
        finally:
            self._task = None

    async def _look(self) -> None:
        """Wakes those whose search has changed."""
        wanted = {search_id for search_id, _ in self._waiting.values()}
        if not wanted:
            return
        try:
            latest = await to_thread.run_sync(self._latest, wanted)
        except Exception:
            LOG.exception("waiting calls could not look at their searches")
            return
        for future, (search_id, seq) in list(self._waiting.items()):
            if search_id in wanted and not future.done() and (search_id not in latest or latest[search_id][1] > seq):
                future.set_result(None)
