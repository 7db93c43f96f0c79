"""Counters and times of one server in the text format of Prometheus, kept in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

DELAY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0)
MEDIA_TYPE = CONTENT_TYPE_LATEST
OTHER = "other"


class Metrics:
    """What a server counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        names = ("route", "method", "status")
        self._requests = Counter("planner_http_requests", "Requests answered", names, registry=self._registry)
        self._seconds = Histogram(
            "planner_http_request_seconds",
            "Seconds until the answer was sent",
            ("route",),
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._searches = Gauge("planner_searches", "Searches in the store", ("state",), registry=self._registry)
        self._cache = Counter("planner_answer_cache", "Answers looked for in memory", ("outcome",), registry=self._registry)
        delay = "How much later than due the event loop came to a task"
        self._delay = Histogram("planner_event_loop_delay_seconds", delay, buckets=DELAY_BUCKETS_S, registry=self._registry)
        own = "How much of that delay the processor time of this process can explain"
        self._own_delay = Histogram("planner_event_loop_own_delay_seconds", own, buckets=DELAY_BUCKETS_S, registry=self._registry)
        self.open_streams = 0
        streams = Gauge("planner_event_streams", "Open event streams", registry=self._registry)
        streams.set_function(lambda: self.open_streams)
        self._hit, self._miss = self._cache.labels("hit"), self._cache.labels("miss")
        self._observers: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None]]] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request; `route` is the template of the address, so there are few."""
        key = (route, method, status)
        observers = self._observers.get(key)
        if observers is None:
            observers = (self._requests.labels(route, method, str(status)).inc, self._seconds.labels(route).observe)
            self._observers[key] = observers
        observers[0]()
        observers[1](seconds)

    def loop_was_late(self, seconds: float, own_seconds: float) -> None:
        """One sample of the event loop's delay."""
        self._delay.observe(seconds)
        self._own_delay.observe(own_seconds)

    def looked_up(self, hit: bool) -> None:
        """An answer was, or was not, in memory."""
        (self._hit if hit else self._miss).inc()

    def text(self, states: Iterable[tuple[str, int]]) -> bytes:
        """Everything, with how many searches are in each state now."""
        for state, count in states:
            self._searches.labels(state).set(count)
        return generate_latest(self._registry)
