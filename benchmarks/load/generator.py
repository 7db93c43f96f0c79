"""A closed-loop HTTP/1.1 load generator on raw asyncio protocols: each connection sends again when the answer is in.

It parses only what it must (status and Content-Length), so that it costs a small part of what the server costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(slots=True)
class Sample:
    """Latencies in seconds in the order of their ends, and how often each status came."""

    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    elapsed_s: float = 0.0
    bodies: set[bytes] = field(default_factory=set)

    def summary(self) -> dict[str, float]:
        """Requests a second and latency quantiles in milliseconds."""
        ordered = sorted(self.latencies_s)
        return {
            "requests": len(ordered),
            "requests_per_s": round(len(ordered) / self.elapsed_s, 1),
            "median_ms": round(statistics.median(ordered) * 1e3, 3),
            "p99_ms": round(quantile(ordered, 0.99) * 1e3, 3),
            "max_ms": round(ordered[-1] * 1e3, 3),
        }


def quantile(ordered: list[float], share: float) -> float:
    """The value below which `share` of an ordered list lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def request_bytes(method: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """One request as it goes over the wire."""
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        *(f"{key}: {value}" for key, value in (headers or {}).items()),
    ]
    if body or method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class _Connection(asyncio.Protocol):
    """Sends the same request again and again until told to stop."""

    def __init__(self, payload: bytes, sample: Sample, end_s: float, keep_bodies: bool) -> None:
        self._payload = payload
        self._sample = sample
        self._end_s = end_s
        self._keep_bodies = keep_bodies
        self._buffer = b""
        self._sent_s = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        head_end = buffer.find(b"\r\n\r\n")
        if head_end < 0 or len(buffer) < (whole := head_end + 4 + _content_length(buffer, head_end)):
            self._buffer = buffer
            return
        self._buffer = buffer[whole:]
        now_s = time.perf_counter()
        self._sample.latencies_s.append(now_s - self._sent_s)
        self._sample.statuses[int(buffer[9:12])] += 1
        if self._keep_bodies:
            self._sample.bodies.add(buffer[head_end + 4 : whole])
        if now_s < self._end_s:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and not self.ended.done():
            self.ended.set_exception(error)
        elif not self.ended.done():
            self.ended.set_result(None)

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._payload)


def _content_length(buffer: bytes, head_end: int) -> int:
    """Of the answer whose head ends there; every answer measured here has one (or is 304)."""
    start = buffer.lower().find(b"content-length:", 0, head_end)
    return int(buffer[start + 15 : buffer.find(b"\r\n", start)]) if start >= 0 else 0


async def drive(url: str, payload: bytes, clients: int, duration_s: float, keep_bodies: bool = False) -> Sample:
    """The sample of `clients` connections over `duration_s` seconds."""
    parts = urlsplit(url)
    sample, loop = Sample(), asyncio.get_running_loop()
    began_s = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: _Connection(payload, sample, began_s + duration_s, keep_bodies), parts.hostname, parts.port
        )
        for _ in range(clients)
    ]
    await asyncio.gather(*(protocol.ended for _, protocol in made))
    sample.elapsed_s = time.perf_counter() - began_s
    return sample


def measure(url: str, payload: bytes, clients: int = 32, duration_s: float = 5.0, keep_bodies: bool = False) -> Sample:
    """`drive` in an event loop of its own, the fast one where it is installed."""
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(drive(url, payload, clients, duration_s, keep_bodies))
