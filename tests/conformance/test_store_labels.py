"""Labels, notes, tags, idempotency keys, filters, deletion and eviction, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from planner_service.states import State
from planner_service.store.engine import writing
from planner_service.store.eviction import EvictionStore
from planner_service.store.plans import DamagedPlan
from planner_service.store.records import Filters, StoredPlan
from planner_service.store.searches import KeyReused
from planner_service.store.tables import events, search_plans
from planner_service.store.tables import plans as plan_table
from tests.conformance.stores import DAY_S, run_together, submit


def plan(letter, body="{}"):
    """A plan with an id of one letter."""
    return StoredPlan(letter * 64, body, "{}")


def done(store, leases, name, *items, **more):
    """An ended search that refers to these plans."""
    search = submit(store, name, **more).search
    assert leases().claim().id == search.id
    assert leases().finish(search.id, f'{{"of":"{name}"}}', False, items, None)
    return search.id


def test_labels_notes_and_tags(store):
    """Given at submission or later; what is not given stays, None takes away; an equal request changes nothing."""
    search = submit(store, "1", label="nightly", note="first", tags=("b", "a", "b")).search
    assert (search.label, search.note, search.tags) == ("nightly", "first", ("a", "b"))
    again = submit(store, "1", label="other", tags=("c",)).search
    assert (again.label, again.tags) == ("nightly", ("a", "b"))
    edited = store.edit(search.id, note=None, tags=("z",))
    assert (edited.label, edited.note, edited.tags) == ("nightly", None, ("z",))
    assert store.edit(search.id, label="x", tags=()).tags == ()
    assert store.get(search.id).label == "x"
    assert store.edit("0" * 26, label="x") is None


def test_filters(store, leases, clock):
    """One by one and together."""
    names = {}
    for number, model in enumerate(("m1", "m2", "m1")):
        made = submit(store, str(number), "same", label=f"l{number}", tags=(f"t{number % 2}",), model=model, framework="any")
        names[made.search.id] = number
        clock.pass_s(10)
    leases().claim()

    def found(**wanted):
        return [names[search.id] for search in store.page(10, filters=Filters(**wanted))]

    assert found() == [2, 1, 0]
    assert found(label="l1") == [1]
    assert found(tag="t0") == [2, 0]
    assert found(model="m1", state=State.QUEUED) == [2]
    assert found(framework="none") == []
    assert found(problem_digest="same".rjust(64, "p"), tag="t1") == [1]
    assert found(request_digest="2".rjust(64, "r")) == [2]
    start_us = store.page(10)[-1].created_at_us
    assert found(created_after_us=start_us) == [2, 1]
    assert found(created_before_us=start_us + 1) == [0]
    assert all(search.result is None for search in store.page(10))


def test_idempotency_keys(store, leases, clock):
    """Same key and request: the same search whatever became of it; other request: refused; a day later: a new meaning."""
    first = submit(store, "1", idempotency_key="k")
    assert first.created
    store.cancel(first.search.id)
    again = submit(store, "1", idempotency_key="k")
    assert not again.created
    assert again.search.id == first.search.id
    assert again.search.state is State.CANCELLED
    with pytest.raises(KeyReused):
        submit(store, "2", idempotency_key="k")
    assert submit(store, "1").created
    clock.pass_s(DAY_S + 1)
    assert submit(store, "2", idempotency_key="k").created


def test_a_key_of_a_coalesced_request(store):
    """A request that an older search answers keeps its key, too."""
    first = submit(store, "1").search
    assert submit(store, "1", idempotency_key="k").search.id == first.id
    with pytest.raises(KeyReused):
        submit(store, "2", idempotency_key="k")


def test_keys_used_at_once(store):
    """Eight equal requests with one key: one search."""
    found = []
    run_together([lambda: found.append(submit(store, "1", idempotency_key="k").search.id) for _ in range(8)])
    assert len(found) == 8
    assert len(set(found)) == 1


def test_answers_are_found_without_writing(store, leases):
    """As `submit` finds them."""
    assert store.find_answer("1".rjust(64, "p"), "1".rjust(64, "r")) is None
    search = submit(store).search
    assert store.find_answer("1".rjust(64, "p"), "1".rjust(64, "r")).id == search.id
    assert store.find_answer("1".rjust(64, "p"), "2".rjust(64, "r")) is None
    leases().claim()
    leases().finish(search.id, "{}", True, (), None)
    assert store.find_answer("1".rjust(64, "p"), "2".rjust(64, "r")).id == search.id


def test_deleting(engine, store, leases, plans):
    """Only what has ended; its rows go, its plans stay until they are evicted, its id is gone and not unknown."""
    search_id = done(store, leases, "1", plan("a"))
    running = submit(store, "2").search
    generation = store.generation()
    assert store.delete(running.id) is False
    assert store.delete("0" * 26) is None
    assert store.generation() == generation
    assert store.delete(search_id) is True
    assert store.generation() > generation
    assert store.get(search_id) is None
    assert store.gone(search_id)
    assert not store.gone(running.id)
    assert plans.get("a" * 64) is not None
    with writing(engine) as connection:
        assert connection.execute(select(events).where(events.c.search_id == search_id)).first() is None
        assert connection.execute(select(search_plans)).first() is None
    assert submit(store, "1").created


def test_edits_count_as_changes(store):
    """Copies kept elsewhere are stale after an edit."""
    search = submit(store).search
    before = store.generation()
    store.edit(search.id, label="x")
    assert store.generation() == before + 1


def test_eviction_by_age(engine, store, leases, plans, clock):
    """Old ended searches go with the plans that only they need; labels, pins and unended ones stay."""
    old = done(store, leases, "old", plan("a"), plan("b"))
    labelled = done(store, leases, "labelled", plan("b"), label="keep")
    tagged = done(store, leases, "tagged", tags=("t",))
    noted = done(store, leases, "noted", note="n")
    pinned = done(store, leases, "pinned", plan("c"))
    plans.pin("c" * 64, "link")
    plans.put([plan("d"), plan("e")])
    plans.pin("e" * 64, "label")
    queued = submit(store, "queued").search.id
    clock.pass_s(10 * DAY_S)
    assert leases().claim().id == queued
    young = done(store, leases, "young", plan("f"))
    gone = EvictionStore(engine, clock).evict(5 * DAY_S, 0)
    assert (gone.searches, gone.plans) == (1, 2)
    assert store.gone(old)
    assert plans.gone("a" * 64)
    assert plans.gone("d" * 64)
    for kept in (labelled, tagged, noted, pinned, queued, young):
        assert store.get(kept) is not None
    for letter in "bce":
        assert plans.get(letter * 64) is not None
    assert EvictionStore(engine, clock).evict(5 * DAY_S, 0).searches == 0


def test_eviction_by_size(engine, store, leases, plans, clock):
    """The oldest go until the store is small enough; what must stay may exceed the limit."""
    ids = []
    for number in range(30):
        ids.append(done(store, leases, f"{number:02d}", StoredPlan(f"{number:064x}", "x" * 1000, "{}")))
        clock.pass_s(1)
    store.edit(ids[0], label="keep")
    evictions = EvictionStore(engine, clock)
    before = evictions.size_bytes()
    gone = evictions.evict(0, before // 2)
    assert gone.size_bytes == evictions.size_bytes() <= before // 2
    assert gone.searches % 10 == 0
    assert 0 < gone.searches < 30
    assert store.get(ids[0]) is not None
    assert store.get(ids[-1]) is not None
    assert store.gone(ids[1])
    assert evictions.evict(0, 1).size_bytes > 1
    assert store.get(ids[0]) is not None


def test_an_evicted_plan_comes_back(engine, store, leases, plans, clock):
    """Found again, it is there again and gone no more."""
    plans.put([plan("a")])
    clock.pass_s(DAY_S)
    EvictionStore(engine, clock).evict(1, 0)
    assert plans.gone("a" * 64)
    plans.put([plan("a")])
    assert plans.get("a" * 64) == plan("a")
    assert not plans.gone("a" * 64)


def test_pins(plans):
    """A plan is kept for each of its reasons."""
    plans.put([plan("a")])
    assert plans.pin("a" * 64, "link")
    assert plans.pin("a" * 64, "link")
    assert plans.pin("a" * 64, "by hand")
    assert not plans.pin("b" * 64, "link")
    assert plans.pins("a" * 64) == ("by hand", "link")
    assert plans.unpin("a" * 64, "link")
    assert not plans.unpin("a" * 64, "link")
    assert plans.pins("a" * 64) == ("by hand",)


def test_a_damaged_plan_is_not_served(engine, plans):
    """The bytes are checked when they are read."""
    plans.put([plan("a", '{"v":1}')])
    with writing(engine) as connection:
        connection.execute(plan_table.update().values(body='{"v":2}'))
    with pytest.raises(DamagedPlan):
        plans.get("a" * 64)


def test_eviction_and_searches_at_once(engine, store, leases, plans, clock):
    """Plans that are evicted while results with them are stored are there afterwards, or nothing refers to them."""
    for round_number in range(6):
        letters = "abcdef"
        plans.put([plan(letter) for letter in letters])
        clock.pass_s(10)
        searches = [submit(store, f"{round_number}-{letter}").search.id for letter in letters]
        owners = [leases(str(number)) for number, _ in enumerate(letters)]
        claimed = [owner.claim().id for owner in owners]
        assert sorted(claimed) == sorted(searches)
        work = [
            lambda owner=owner, search_id=search_id, letter=letter: owner.finish(search_id, "{}", False, [plan(letter)], None)
            for owner, search_id, letter in zip(owners, claimed, letters, strict=True)
        ]
        run_together([*work, lambda: EvictionStore(engine, clock).evict(1, 0)])
        for search_id, letter in zip(claimed, letters, strict=True):
            assert store.get(search_id).state is State.DONE
            assert plans.get(letter * 64) is not None
            store.delete(search_id)
