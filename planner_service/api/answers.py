"""Finished answers kept in memory as the bytes that were sent, so that asking again costs next to nothing - and never lies.

An entry is used only while the store's generation is the one it was made under. The generation is read anew for every
request, after the request came in: at a glance where the database is in this process, else in a thread, and then requests
that come in while one reading is under way share the next one. Whatever could make an answer untrue (a deletion, an eviction,
an edit), in this or any other server, raises it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """What was asked: the kind of question and what identifies it."""

    kind: str
    identity: str | bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes that were sent, and what else the route needs to send them again."""

    body: bytes
    etag: str
    location: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    answer: Answer
    generation: int


class Generation:
    """The store's generation as of after the call; calls that wait share one reading.

    `glance` gives it without waiting, or None; `read` may wait.
    """

    def __init__(self, read: Callable[[], int], glance: Callable[[], int | None]) -> None:
        self._read = read
        self._glance = glance
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generation")
        self._next: asyncio.Future[int] | None = None
        self._task: asyncio.Task[None] | None = None

    async def now(self) -> int:
        """At a glance, or by joining the reading that starts next."""
        seen = self._glance()
        if seen is not None:
            return seen
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        joined = self._next
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await asyncio.shield(joined)

    def stop(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()

    async def _work(self) -> None:
        """Reads until nobody waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._next is not None:
                waiting, self._next = self._next, None
                try:
                    value = await loop.run_in_executor(self._thread, self._read)
                except Exception as error:
                    waiting.set_exception(error)
                    waiting.exception()
                else:
                    waiting.set_result(value)
        finally:
            self._task = None


class Answers:
    """The least recently used answers give way when the bytes are too many."""

    def __init__(self, generation: Generation, max_bytes: int) -> None:
        self._generation = generation
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._bytes = 0

    async def find(self, key: Key) -> Answer | None:
        """The answer, if it is kept and still true."""
        if key not in self._entries:
            return None
        now = await self._generation.now()
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.generation != now:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.answer

    def keep(self, key: Key, answer: Answer, generation: int) -> None:
        """Keeps an answer that was read from the store after `generation` had been."""
        size = _size(key, answer)
        if size > self._max_bytes:
            return
        self._drop(key)
        self._entries[key] = _Entry(answer, generation)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    @property
    def size_bytes(self) -> int:
        """Bytes of the answers kept."""
        return self._bytes

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= _size(key, entry.answer)


def _size(key: Key, answer: Answer) -> int:
    """Bytes of an entry, with something for the objects around it."""
    return len(answer.body) + len(key.identity) + 500
