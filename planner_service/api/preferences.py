"""`Prefer: wait=N` (RFC 7240): an answer that waits for the end of a search."""

from __future__ import annotations

import re
import time

from anyio import to_thread
from starlette.requests import Request

from planner_service.api.desk import Desk
from planner_service.states import TERMINAL

WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)


def wait_s(request: Request, largest_s: float) -> float | None:
    """Seconds the client would wait, at most what the service allows; None when it did not say."""
    found = WAIT.search(", ".join(request.headers.getlist("prefer")))
    return min(float(found.group(1)), largest_s) if found else None


async def wait_for_end(desk: Desk, search_id: str, seconds: float) -> None:
    """Returns when the search has ended, is no more, or the time is over."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        latest = await to_thread.run_sync(desk.services.events.latest, [search_id])
        if search_id not in latest or latest[search_id][0] in TERMINAL:
            return
        await desk.watcher.changed(search_id, latest[search_id][1], left_s)
