"""The store's contract, on SQLite and on PostgreSQL: single flight, leases, attempts, bytes kept as they are."""

from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from planner_service.states import State
from planner_service.store.engine import open_engine, reading, writing
from planner_service.store.leases import Beat
from planner_service.store.migrate import current_revision, downgrade, head_revision, upgrade
from planner_service.store.plans import PlanStore
from planner_service.store.records import Filters, StoredPlan
from planner_service.store.searches import QueueFull, SearchStore
from planner_service.store.tables import metadata, searches
from tests.conformance.stores import run_together, submit


def test_migrations_make_exactly_the_tables(engine):
    """Alembic finds nothing to change, and the revision is the newest."""
    assert current_revision(engine) == head_revision()
    with reading(engine) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrations_go_down_and_up(engine):
    """Down to nothing and up again."""
    downgrade(engine, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    upgrade(engine)
    assert {"searches", "plans"} <= set(inspect(engine).get_table_names())


def test_servers_that_start_together_migrate_once(database_url):
    """Six engines upgrade the same empty database at once."""
    engines = [open_engine(database_url) for _ in range(6)]
    failures = []

    def start(engine):
        try:
            upgrade(engine)
        except Exception as error:
            failures.append(error)

    run_together([lambda engine=engine: start(engine) for engine in engines])
    assert failures == []
    assert current_revision(engines[0]) == head_revision()
    for engine in engines:
        engine.dispose()


def test_submit_and_read(store):
    """A new search is queued and can be read by its id."""
    made = submit(store)
    assert made.created
    found = store.get(made.search.id)
    assert found == made.search
    assert found.state is State.QUEUED
    assert found.result is None
    assert store.get("0" * 26) is None


def test_equal_request_coalesces_in_every_answering_state(store, leases):
    """Queued, running and done searches answer an equal request."""
    first = submit(store).search
    assert submit(store).search.id == first.id
    leases().claim()
    assert not submit(store).created
    assert leases().finish(first.id, "{}", False, (), None)
    again = submit(store)
    assert not again.created
    assert again.search.state is State.DONE


def test_failed_and_cancelled_do_not_answer(store, leases):
    """An equal request after a failure or a cancellation is a new search."""
    first = submit(store).search
    leases().claim()
    assert leases().fail(first.id, "{}")
    second = submit(store)
    assert second.created
    store.cancel(second.search.id)
    assert submit(store).created


def test_proven_answers_the_problem(store, leases):
    """A proven result answers every request of its problem; an unproven one does not."""
    first = submit(store, "1", "same").search
    leases().claim()
    leases().finish(first.id, "{}", False, (), None)
    second = submit(store, "2", "same")
    assert second.created
    leases().claim()
    leases().finish(second.search.id, "{}", True, (), None)
    third = submit(store, "3", "same")
    assert not third.created
    assert third.search.id == second.search.id
    assert submit(store, "1", "same").search.id == second.search.id


def test_sixteen_clients_at_once_make_one_search(store):
    """The unique index decides; the losers find the winner's search."""
    results = []
    run_together([lambda: results.append(submit(store)) for _ in range(16)])
    assert len(results) == 16
    assert len({item.search.id for item in results}) == 1
    assert sum(item.created for item in results) == 1


def test_the_index_allows_one_answering_search(engine, store):
    """Even SQL from elsewhere cannot make a second one."""
    first = submit(store).search
    names = [column.name for column in searches.columns if column.name != "id"]
    copy = f"INSERT INTO searches (id, {', '.join(names)}) SELECT :new, {', '.join(names)} FROM searches WHERE id = :old"
    with pytest.raises(IntegrityError), writing(engine) as connection:
        connection.execute(text(copy), {"new": "X" * 26, "old": first.id})


def test_queue_is_bounded(engine, clock):
    """Beyond the bound nothing is accepted, but known answers still are."""
    small = SearchStore(engine, clock, max_queued=2)
    submit(small, "1")
    submit(small, "2")
    with pytest.raises(QueueFull):
        submit(small, "3")
    assert not submit(small, "2").created


def test_claim_is_first_come_first_served(store, leases, clock):
    """The oldest queued search is claimed; each only once."""
    ids = []
    for name in "123":
        ids.append(submit(store, name).search.id)
        clock.pass_s(1)
    claims = [leases(owner).claim() for owner in "abc"]
    assert [claim.id for claim in claims] == ids
    assert leases("d").claim() is None
    assert not leases("d").waiting()


def test_many_workers_share_the_queue(store, leases):
    """Twenty searches, eight workers at once: each search is claimed exactly once."""
    ids = {submit(store, str(number)).search.id for number in range(20)}
    claimed, lock = [], threading.Lock()

    def work(owner):
        while (claim := leases(owner).claim()) is not None:
            with lock:
                claimed.append(claim.id)

    run_together([lambda owner=str(number): work(owner) for number in range(8)])
    assert sorted(claimed) == sorted(ids)


def test_heartbeat_keeps_the_lease(store, leases, clock):
    """As long as the owner beats, nobody else gets the search."""
    search = submit(store).search
    leases("a").claim()
    for _ in range(5):
        clock.pass_s(9)
        assert leases("a").beat(search.id, '{"done":1}') is Beat.HELD
        assert leases("b").claim() is None
    assert store.get(search.id).progress == '{"done":1}'


def test_an_expired_lease_is_taken_over(store, leases, clock):
    """The new owner finishes; the old one can change nothing any more."""
    search = submit(store).search
    leases("a").claim()
    clock.pass_s(11)
    taken = leases("b").claim()
    assert taken.id == search.id
    assert taken.attempts == 1
    plan = StoredPlan("a" * 64, "{}", "{}")
    assert leases("a").beat(search.id, '{"done":9}') is Beat.LOST
    assert not leases("a").finish(search.id, '{"from":"a"}', True, [plan], None)
    assert not leases("a").fail(search.id, "{}")
    assert not leases("a").cancelled(search.id, None, (), None)
    assert not leases("a").release(search.id, refund=True)
    assert leases("b").finish(search.id, '{"from":"b"}', True, (), None)
    assert store.get(search.id).result == '{"from":"b"}'


def test_a_lost_finish_leaves_no_plan(engine, store, leases, clock):
    """Result and plans are one transaction."""
    search = submit(store).search
    leases("a").claim()
    clock.pass_s(11)
    leases("b").claim()
    leases("a").finish(search.id, "{}", True, [StoredPlan("c" * 64, "{}", "{}")], None)
    assert PlanStore(engine, clock).get("c" * 64) is None


def test_lost_owners_cost_no_attempt(store, leases, clock):
    """Servers that are killed do not use up the attempts of their searches; a child that dies does."""
    submit(store)
    leases("a").claim()
    clock.pass_s(11)
    assert leases("b").claim().attempts == 1
    clock.pass_s(11)
    taken = leases("c").claim()
    assert taken.attempts == 1
    assert leases("c").release(taken.id, refund=False)
    assert leases("d").claim().attempts == 2


def test_takeovers_run_out(store, leases, clock):
    """After three lost owners the search is buried with its error, and claimed no more."""
    search = submit(store).search
    for _ in range(3):
        assert leases("a").claim() is not None
        clock.pass_s(11)
    assert leases("b").waiting()
    assert leases("b").claim() is None
    assert leases("b").bury('{"code":"poisoned"}') == 1
    found = store.get(search.id)
    assert found.state is State.FAILED
    assert found.error == '{"code":"poisoned"}'
    assert not leases("b").waiting()


def test_a_release_by_the_server_costs_no_attempt(store, leases):
    """Stopping a server often does not poison its searches."""
    submit(store)
    for _ in range(10):
        claim = leases().claim()
        assert claim.attempts == 1
        assert leases().release(claim.id, refund=True)


def test_a_dead_child_costs_an_attempt(store, leases):
    """Released without refund, the count goes up."""
    submit(store)
    for attempt in (1, 2, 3):
        claim = leases().claim()
        assert claim.attempts == attempt
        leases().release(claim.id, refund=False)


def test_cancel(store, leases):
    """Queued: at once. Running: the owner is told. Ended: nothing changes."""
    queued = submit(store, "1").search
    assert store.cancel(queued.id).state is State.CANCELLED
    running = submit(store, "2").search
    leases().claim()
    assert store.cancel(running.id).state is State.RUNNING
    assert leases().beat(running.id, None) is Beat.CANCEL
    assert leases().cancelled(running.id, '{"status":"feasible"}', (), None)
    assert store.get(running.id).result == '{"status":"feasible"}'
    assert store.cancel(running.id).state is State.CANCELLED
    done = submit(store, "3").search
    leases().claim()
    leases().finish(done.id, "{}", True, (), None)
    assert store.cancel(done.id).state is State.DONE
    assert store.cancel("0" * 26) is None


def test_dead_owners_leases_are_ended(store, leases):
    """What a dead server held can be claimed at once."""
    search = submit(store).search
    leases("dead").claim()
    assert leases("b").owners() == ["dead"]
    assert leases("b").claim() is None
    assert leases("b").expire(["dead"]) == 1
    assert leases("b").claim().id == search.id


@pytest.mark.parametrize("result", ['{"a": 1.0, "b":  [1e-7,\t"é☃𝄞"]}', '{"long":"' + "x" * 3_000_000 + '"}'])
def test_results_keep_their_bytes(store, leases, result):
    """Spaces, number spelling and any Unicode come back as they went in."""
    search = submit(store).search
    leases().claim()
    leases().finish(search.id, result, True, (), None)
    assert store.get(search.id).result == result


def test_plans_never_change(engine, clock):
    """The first body of an id stays; unknown ids are none."""
    store = PlanStore(engine, clock)
    store.put([StoredPlan("b" * 64, '{"v": 1}', '{"c": 1}'), StoredPlan("a" * 64, "{}", "{}")])
    store.put([StoredPlan("b" * 64, '{"v": 2}', '{"c": 2}')])
    store.put([])
    assert store.get("b" * 64) == StoredPlan("b" * 64, '{"v": 1}', '{"c": 1}')
    assert store.get("0" * 64) is None


def test_plans_put_at_once(engine, clock):
    """Writers of overlapping plans in different order do not lock each other out."""
    store = PlanStore(engine, clock)
    items = [StoredPlan(f"{number:064x}", "{}", "{}") for number in range(50)]
    failures = []

    def put(order):
        try:
            store.put(order)
        except Exception as error:
            failures.append(error)

    run_together([lambda order=order: put(order) for order in (items, items[::-1]) * 4])
    assert failures == []


def test_pages(store, clock):
    """Newest first, without gaps or repeats, also within one microsecond."""
    ids = [submit(store, str(number)).search.id for number in range(7)]
    clock.pass_s(1)
    ids.append(submit(store, "last").search.id)
    seen, before = [], None
    while page := store.page(3, before):
        seen += [search.id for search in page]
        before = (page[-1].created_at_us, page[-1].id)
    assert seen == [ids[-1], *sorted(ids[:-1], reverse=True)]
    assert store.page(10, filters=Filters(state=State.DONE)) == []


def test_states_are_checked_by_the_database(engine, store):
    """No code can write a state that does not exist, or a running search without an owner."""
    search = submit(store).search
    for values in ({"state": "resting"}, {"state": "running"}):
        with pytest.raises(IntegrityError), writing(engine) as connection:
            connection.execute(searches.update().where(searches.c.id == search.id).values(**values))
