"""What a server or worker does beside its searches: take over from dead neighbours, and keep the store small."""

from __future__ import annotations

import logging
import threading
import time

from planner_service.jobs.runner import Runner
from planner_service.settings import Settings
from planner_service.store.eviction import EvictionStore

LOG = logging.getLogger("planner.jobs")
LOOK_S = 1.0
EVICT_S = 300.0
DAY_S = 86_400.0


class Housekeeper:
    """One thread."""

    def __init__(self, runner: Runner, evictions: EvictionStore, settings: Settings) -> None:
        self._runner = runner
        self._evictions = evictions
        self._settings = settings
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="housekeeping")

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends with the round that is under way."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        """Rounds until told to stop; an error of the database is logged and tried again."""
        evict_at_s = time.monotonic() + EVICT_S
        while not self._stopping.wait(LOOK_S):
            try:
                self._runner.free_searches_of_the_dead()
                if time.monotonic() >= evict_at_s:
                    evict_at_s = time.monotonic() + EVICT_S
                    settings = self._settings
                    self._evictions.evict(settings.store_max_age_days * DAY_S, settings.store_max_bytes)
            except Exception:
                LOG.exception("housekeeping failed and goes on")
