"""What one server's routes share beside the services: its metrics, its answers in memory, who waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from anyio import CapacityLimiter
from starlette.requests import Request

from planner_service.api.answers import Answers, Generation
from planner_service.api.loop_delay import LoopDelay
from planner_service.api.metrics import Metrics
from planner_service.api.watcher import Watcher
from planner_service.jobs.evaluator import Evaluator
from planner_service.services import Services
from planner_service.store.glance import Glance

THINKING_THREADS = 2


@dataclass(frozen=True, slots=True)
class Desk:
    """Made when the server starts. `thinking` lets few threads at once parse and check documents, so that the event loop
    is not one of many that want the interpreter; `reader` is the child process for large ones."""

    services: Services
    metrics: Metrics
    generation: Generation
    answers: Answers
    watcher: Watcher
    thinking: CapacityLimiter
    glance: Glance
    delay: LoopDelay
    reader: Evaluator

    def close(self) -> None:
        """Ends threads, processes and connections; `delay` is a task of the loop and stopped there."""
        self.reader.stop()
        self.generation.stop()
        self.glance.close()


def open_desk(services: Services, metrics: Metrics, solver_name: str) -> Desk:
    """Inside the running event loop."""
    glance = Glance(services.engine)
    generation = Generation(services.searches.generation, glance.generation)
    answers = Answers(generation, services.settings.answer_cache_bytes)
    watcher, thinking = Watcher(services.events.latest), CapacityLimiter(THINKING_THREADS)
    delay = LoopDelay(metrics.loop_was_late)
    delay.start()
    reader = Evaluator(services.settings, solver_name, first_job="ready")
    return Desk(services, metrics, generation, answers, watcher, thinking, glance, delay, reader)


def desk_of(request: Request) -> Desk:
    """The desk of the server that got this request."""
    desk = request.app.state.desk
    assert isinstance(desk, Desk)
    return desk
