"""The life of a search: every pair of state and event, and nothing ends twice."""

from __future__ import annotations

import itertools

import pytest

from planner_service.states import ANSWERING, TERMINAL, TRANSITIONS, Event, State


def test_every_event_has_its_transition():
    """The table is complete."""
    assert set(TRANSITIONS) == set(Event)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_no_event_leaves_a_terminal_state(state, event):
    """Done, failed and cancelled are for ever."""
    if state in TERMINAL:
        assert TRANSITIONS[event].source is not state


def test_every_state_is_reachable_and_ends():
    """From queued each state can be reached, and from each state an end."""
    moves = {(step.source, step.target) for step in TRANSITIONS.values()}
    reached = {State.QUEUED}
    for _ in State:
        reached |= {target for source, target in moves if source in reached}
    assert reached == set(State)
    ending = set(TERMINAL)
    for _ in State:
        ending |= {source for source, target in moves if target in ending}
    assert ending == set(State)


def test_what_answers_an_equal_request():
    """Neither failed nor cancelled searches answer."""
    assert set(ANSWERING) == set(State) - {State.FAILED, State.CANCELLED}
