"""What one server's routes share beside the services: its metrics, its answers in memory, who waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from anyio import CapacityLimiter
from starlette.requests import Request

from planner_service.api.answers import Answers, Generation
from planner_service.api.loop_delay import LoopDelay
from planner_service.api.metrics import Metrics
from planner_service.api.watcher import Watcher
from planner_service.services import Services
from planner_service.store.glance import Glance

THINKING_THREADS = 2


@dataclass(frozen=True, slots=True)
class Desk:
    """Made when the server starts. `thinking` lets few threads at once parse and check documents, so that the event loop
    is not one of many that want the interpreter."""

    services: Services
    metrics: Metrics
    generation: Generation
    answers: Answers
    watcher: Watcher
    thinking: CapacityLimiter
    glance: Glance
    delay: LoopDelay

    def close(self) -> None:
        """Ends threads and connections."""
        self.delay.stop()
        self.generation.stop()
        self.glance.close()


def open_desk(services: Services, metrics: Metrics) -> Desk:
    """Inside the running event loop."""
    glance = Glance(services.engine)
    generation = Generation(services.searches.generation, glance.generation)
    answers = Answers(generation, services.settings.answer_cache_bytes)
    watcher, thinking = Watcher(services.events.latest), CapacityLimiter(THINKING_THREADS)
    delay = LoopDelay(metrics.loop_was_late)
    delay.start()
    return Desk(services, metrics, generation, answers, watcher, thinking, glance, delay)


def desk_of(request: Request) -> Desk:
    """The desk of the server that got this request."""
    desk = request.app.state.desk
    assert isinstance(desk, Desk)
    return desk
