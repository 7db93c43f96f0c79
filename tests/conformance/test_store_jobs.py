"""Events, attempts, checkpoints and reproductions of searches, on SQLite and on PostgreSQL."""

from __future__ import annotations

import orjson
import pytest

from planner_service.states import State
from planner_service.store.attempts import ReproductionStore
from planner_service.store.checkup import counts, findings
from planner_service.store.engine import writing
from planner_service.store.events import KEPT, EventStore
from planner_service.store.leases import Beat
from planner_service.store.records import NO_PROGRESS, Checkpoint, StoredPlan
from planner_service.store.tables import checkpoints, plans, searches
from tests.conformance.stores import submit

LAYOUT = Checkpoint('{"layout":1}', 2.0, 1.0)


def told(engine, search_id, after=0):
    """(kind, data) of the events after a number; numbers rise."""
    found = EventStore(engine).after(search_id, after, 10_000)
    assert [event.seq for event in found] == sorted({event.seq for event in found})
    return [(event.kind, orjson.loads(event.data)) for event in found]


def test_every_change_is_told_once(engine, store, leases, clock):
    """From queued to done, with a take-over in between; reading can start anywhere."""
    search = submit(store).search
    leases("a").claim()
    leases("a").beat(search.id, '{"done":1}')
    leases("a").beat(search.id, None)
    leases("a").beat(search.id, '{"done":2}', LAYOUT, improved=True)
    clock.pass_s(11)
    leases("b").claim()
    leases("b").finish(search.id, "{}", True, (), '{"done":3}')
    expected = [
        ("state", {"state": "queued"}),
        ("state", {"state": "running", "attempt": 1}),
        ("progress", {"done": 1}),
        ("incumbent", {"done": 2}),
        ("state", {"state": "running", "attempt": 2}),
        ("state", {"state": "done"}),
    ]
    assert told(engine, search.id) == expected
    assert told(engine, search.id, after=4) == expected[4:]
    assert len(EventStore(engine).after(search.id, 0, 2)) == 2
    assert EventStore(engine).latest([search.id, "0" * 26]) == {search.id: (State.DONE, 6)}
    assert findings(engine) == []


@pytest.mark.parametrize("end", ["cancel_queued", "cancelled", "failed", "released"])
def test_every_end_is_told(engine, store, leases, end):
    """The last event is the state that the row has."""
    search = submit(store).search
    if end == "cancel_queued":
        store.cancel(search.id)
    else:
        leases().claim()
        calls = {
            "cancelled": lambda: leases().cancelled(search.id, None, (), None),
            "failed": lambda: leases().fail(search.id, "{}"),
            "released": lambda: leases().release(search.id, refund=False),
        }
        assert calls[end]()
    assert told(engine, search.id)[-1] == ("state", {"state": store.get(search.id).state})
    assert findings(engine) == []


def test_lost_owners_tell_nothing(engine, store, leases, clock):
    """An owner whose lease was taken over writes no event."""
    search = submit(store).search
    leases("a").claim()
    clock.pass_s(11)
    leases("b").claim()
    before = told(engine, search.id)
    assert leases("a").beat(search.id, '{"done":9}', LAYOUT, improved=True) is Beat.LOST
    leases("a").finish(search.id, "{}", True, (), None)
    leases("a").release(search.id, refund=False)
    leases("a").fail(search.id, "{}")
    assert told(engine, search.id) == before


def test_the_log_is_bounded(engine, store, leases):
    """Old progress goes; states, newest progress and the end stay."""
    search = submit(store).search
    leases().claim()
    for number in range(KEPT["progress"] + 20):
        leases().beat(search.id, f'{{"done":{number}}}')
    leases().finish(search.id, "{}", True, (), None)
    found = told(engine, search.id)
    assert [data["state"] for kind, data in found if kind == "state"] == ["queued", "running", "done"]
    progress = [data["done"] for kind, data in found if kind == "progress"]
    assert progress == list(range(20, KEPT["progress"] + 20))
    assert found[-1] == ("state", {"state": "done"})


def test_the_next_attempt_begins_with_what_was_found(engine, store, leases, clock):
    """The newest checkpoint and progress come with the claim; after the end they are gone."""
    search = submit(store).search
    first = leases("a").claim()
    assert (first.checkpoint, first.progress) == (None, NO_PROGRESS)
    leases("a").beat(search.id, '{"done":1}', Checkpoint('{"layout":0}', 3.0, 0.5), improved=True)
    leases("a").beat(search.id, '{"done":2}', LAYOUT, improved=True)
    clock.pass_s(11)
    second = leases("b").claim()
    assert second.checkpoint == LAYOUT
    assert second.progress == '{"done":2}'
    leases("b").finish(search.id, "{}", True, (), None)
    with writing(engine) as connection:
        assert connection.execute(checkpoints.select()).first() is None


def test_other_versions_begin_anew(store, leases, clock):
    """Their layout is a proposal, their numbers are not; and their answer is not that of the digest any more."""
    search = submit(store, versions="old").search
    leases("a", "old").claim()
    leases("a", "old").beat(search.id, '{"done":2}', LAYOUT, improved=True)
    clock.pass_s(11)
    claim = leases("b", "new").claim()
    assert claim.checkpoint == Checkpoint('{"layout":1}', None, None)
    assert claim.progress == NO_PROGRESS
    leases("b", "new").beat(search.id, '{"done":1}', Checkpoint('{"layout":2}', 2.5, 0.0))
    clock.pass_s(11)
    assert leases("c", "new").claim().checkpoint == Checkpoint('{"layout":2}', 2.5, 0.0)
    leases("c", "new").finish(search.id, '{"from":"new"}', True, (), None)
    assert store.find_answer("1".rjust(64, "p"), "1".rjust(64, "r"), "old") is None
    assert store.find_answer("1".rjust(64, "p"), "1".rjust(64, "r"), "new") is None
    assert store.get(search.id).result == '{"from":"new"}'


def test_versions_are_part_of_the_key(store, leases):
    """A result of other versions answers nobody; each version has its own search."""
    old = submit(store, versions="old").search
    leases("a", "old").claim()
    leases("a", "old").finish(old.id, "{}", True, (), None)
    assert submit(store, versions="old").search.id == old.id
    new = submit(store, versions="new")
    assert new.created
    assert new.search.id != old.id


def test_neighbours(store, leases):
    """Newest results of near problems, three at most; never the search itself, nor what has not ended well."""
    ids = []
    for name in "12345":
        ids.append(submit(store, name, near_digest="n" * 64).search.id)
        assert leases().claim().id == ids[-1]
        if name == "3":
            leases().fail(ids[-1], "{}")
        else:
            leases().finish(ids[-1], f'{{"of":{name}}}', name == "1", (), None)
    submit(store, "far", near_digest="f" * 64)
    assert leases().claim().neighbours == ()
    submit(store, "6", near_digest="n" * 64)
    found = {orjson.loads(result)["of"] for result in leases().claim().neighbours}
    assert len(found) == 3
    assert found <= {1, 2, 4, 5}
    submit(store, "none")
    assert leases().claim().neighbours == ()


def test_a_poisoned_search_leaves_its_reproduction(engine, store, leases, clock):
    """Request, versions, progress, best layout, and how each attempt ended; whether the owner or the child died."""
    versions = '{"solver":"1"}'
    search = submit(store, versions=versions).search
    leases("a", versions).claim()
    leases("a", versions).beat(search.id, '{"done":7}', LAYOUT)
    leases("a", versions).release(search.id, refund=False, ending="its process was killed by signal 9 (SIGKILL)")
    for _ in range(3):
        leases("b", versions).claim()
        clock.pass_s(11)
    assert leases("c", versions).bury('{"code":"poisoned"}') == 1
    assert store.get(search.id).state is State.FAILED
    store_of = ReproductionStore(engine)
    assert store_of.ids() == [search.id]
    body = orjson.loads(store_of.get(search.id).body)
    assert body["problem"] == {"n": "1"}
    assert body["versions"] == {"solver": "1"}
    assert body["progress"] == {"done": 7}
    assert body["best_layout"] == {"layout": 1}
    assert [attempt["number"] for attempt in body["attempts"]] == [1, 2, 3, 4]
    assert "SIGKILL" in body["attempts"][0]["ending"]
    assert all(attempt["ending"].startswith("lost") for attempt in body["attempts"][1:])
    assert all(attempt["ended_at"] >= attempt["started_at"] for attempt in body["attempts"])
    assert store_of.get("0" * 26) is None
    assert findings(engine) == []


def test_cancellation_is_seen_by_readers(store, leases):
    """An owner in another process looks without writing."""
    search = submit(store).search
    leases().claim()
    assert not leases().cancel_wanted(search.id)
    store.cancel(search.id)
    assert leases().cancel_wanted(search.id)
    assert not leases().cancel_wanted("0" * 26)


def test_the_checkup_sees_damage(engine, store, leases):
    """Each kind of damage is one finding that names the row."""
    search = submit(store).search
    leases().claim()
    leases().finish(search.id, "{}", True, [StoredPlan("a" * 64, "{}", "{}")], None)
    assert findings(engine) == []
    damages = [
        (searches.update().values(result=None), "without a result"),
        (searches.update().values(result="{}", finished_at_us=None), "without a time"),
        (searches.update().values(finished_at_us=1, last_seq=9), "newest event"),
        (searches.update().values(last_seq=3, state="cancelled"), "does not tell"),
        (searches.update().values(state="done"), None),
        (plans.update().values(body="{ }"), "checksum"),
    ]
    for statement, expected in damages:
        with writing(engine) as connection:
            connection.execute(statement)
        found = findings(engine)
        assert len(found) == (expected is not None), found
        assert expected is None or expected in found[0]
    assert counts(engine) | {"searches done": 1, "plans": 1} == counts(engine)
