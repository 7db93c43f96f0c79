"""Random schedules of owners, clients, crashes and clock jumps on the store itself: whatever the order, the promises hold."""

from __future__ import annotations

import random

import orjson
import pytest

from planner_service.states import TERMINAL, State
from planner_service.store.checkup import findings
from planner_service.store.events import EventStore
from planner_service.store.leases import Beat, LeaseStore
from planner_service.store.records import Checkpoint, StoredPlan
from tests.conformance.stores import submit

OWNERS, NAMES, STEPS, LOOK_EVERY, MAX_TAKEOVERS = "abc", "12345", 120, 6, 2


class Simulation:
    """Owners that forget what they hold when they crash, and a client that remembers all it was told."""

    def __init__(self, store, engine, clock, seed):
        self.random = random.Random(seed)
        self.store, self.engine, self.clock = store, engine, clock
        self.leases = {owner: LeaseStore(engine, owner, 10.0, MAX_TAKEOVERS, clock) for owner in OWNERS}
        self.held = {}
        self.ends = {}
        self.ids = set()

    def run(self):
        """Random steps, then owners that work until nothing is left."""
        for step in range(STEPS):
            self.random.choice([self.client, self.owner, self.owner, self.owner, self.crash, self.time])()
            if step % LOOK_EVERY == 0:
                self.look()
        self.clock.pass_s(1000)  # however far the clock was set back, every lease has ended
        for _ in range(10 * len(self.ids) * (MAX_TAKEOVERS + 1)):
            self.clock.pass_s(11)
            self.leases["a"].bury('{"code":"poisoned"}')
            claim = self.leases["a"].claim()
            if claim is None:
                break
            self.leases["a"].finish(claim.id, self.result("a"), True, [self.plan()], None)
        self.look()

    def client(self):
        """Submits or cancels."""
        if self.ids and self.random.random() < 0.2:
            self.store.cancel(self.random.choice(sorted(self.ids)))
        else:
            self.ids.add(submit(self.store, self.random.choice(NAMES)).search.id)

    def owner(self):
        """One step of an owner with or without a search; it may have lost its lease without knowing."""
        owner = self.random.choice(OWNERS)
        leases, search_id = self.leases[owner], self.held.get(owner)
        if search_id is None:
            leases.bury('{"code":"poisoned"}')
            claim = leases.claim()
            self.held[owner] = claim.id if claim else None
            return
        value = self.random.random()
        act = self.random.choice(["beat", "beat", "finish", "fail", "release", "cancel"])
        if act == "beat":
            beat = leases.beat(search_id, orjson.dumps({"done": value}).decode(), Checkpoint("{}", value, 0.0))
            if beat is Beat.LOST:
                self.held[owner] = None
            return
        self.held[owner] = None
        calls = {
            "finish": lambda: leases.finish(search_id, self.result(owner), value < 0.5, [self.plan()], None),
            "fail": lambda: leases.fail(search_id, '{"code":"internal_error"}'),
            "release": lambda: leases.release(search_id, refund=value < 0.5),
            "cancel": lambda: leases.cancelled(search_id, None, (), None),
        }
        before = self.store.get(search_id)
        kept = calls[act]()
        after = self.store.get(search_id)
        assert kept or after == before, "an owner that had lost its lease changed something"

    def crash(self):
        """An owner forgets everything; sometimes its lease is ended by a neighbour."""
        owner = self.random.choice(OWNERS)
        self.held[owner] = None
        if self.random.random() < 0.5:
            self.leases[OWNERS[0]].expire([owner])

    def time(self):
        """A little or more than a lease; now and then the clock is set back."""
        self.clock.pass_s(self.random.choice([0.1, 3.0, 11.0, -2.0]))

    def look(self):
        """What the client sees never contradicts what it saw."""
        for search_id in self.ids:
            found = self.store.get(search_id)
            if found.state in TERMINAL:
                assert self.ends.setdefault(search_id, found) == found
            else:
                assert search_id not in self.ends

    def result(self, owner):
        return orjson.dumps({"from": owner, "noise": self.random.random()}).decode()

    def plan(self):
        return StoredPlan(f"{self.random.randrange(4):064x}", "{}", "{}")


@pytest.mark.parametrize("seed", range(4))
def test_promises_hold_in_any_order(store, engine, clock, seed):
    """Every search ends, once, with one end in its log; the database is whole."""
    simulation = Simulation(store, engine, clock, seed)
    simulation.run()
    assert len(simulation.ids) >= len(NAMES)
    assert set(simulation.ends) == simulation.ids
    for search_id, end in simulation.ends.items():
        log = EventStore(engine).after(search_id, 0, 10_000)
        states = [State(orjson.loads(event.data)["state"]) for event in log if event.kind == "state"]
        assert [state for state in states if state in TERMINAL] == [end.state]
        assert log[-1].kind == "state"
        assert [event.seq for event in log] == sorted({event.seq for event in log})
    assert findings(engine) == []
