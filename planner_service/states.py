"""The life of a search, as one table: every change of state in the store is one of these events and no other.

queued --claim--> running --finish--> done
running --reclaim--> running (its lease ran out: another owner takes over)
running --release--> queued (the server stops, or its child died and attempts are left)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a search is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({State.DONE, State.FAILED, State.CANCELLED})
ANSWERING = (State.QUEUED, State.RUNNING, State.DONE)
"""States in which a search answers an equal request (the single-flight index is over these)."""


class Event(StrEnum):
    """What can happen to a search."""

    CLAIM = "claim"
    RECLAIM = "reclaim"
    RELEASE = "release"
    FINISH = "finish"
    FAIL = "fail"
    CANCEL_QUEUED = "cancel_queued"
    CANCEL_RUNNING = "cancel_running"
    POISON = "poison"


@dataclass(frozen=True, slots=True)
class Transition:
    """An event moves a search from one state to another."""

    source: State
    target: State


TRANSITIONS: dict[Event, Transition] = {
    Event.CLAIM: Transition(State.QUEUED, State.RUNNING),
    Event.RECLAIM: Transition(State.RUNNING, State.RUNNING),
    Event.RELEASE: Transition(State.RUNNING, State.QUEUED),
    Event.FINISH: Transition(State.RUNNING, State.DONE),
    Event.FAIL: Transition(State.RUNNING, State.FAILED),
    Event.POISON: Transition(State.RUNNING, State.FAILED),
    Event.CANCEL_QUEUED: Transition(State.QUEUED, State.CANCELLED),
    Event.CANCEL_RUNNING: Transition(State.RUNNING, State.CANCELLED),
}
