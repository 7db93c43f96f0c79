"""Workers beside servers: take-over, cancellation across processes, searches that begin with what is known, poison."""

from __future__ import annotations

import os
import signal
import time

import orjson
import pytest

import solver as core
from planner_service.jobs.admission import Admission
from planner_service.jobs.best import Best, known_before, merge
from planner_service.jobs.child_messages import start_document, start_of
from planner_service.jobs.process import ChildEnded
from planner_service.problems import Problem
from planner_service.settings import Settings
from planner_service.solver_adapter import RealSolver
from planner_service.states import TERMINAL, State
from planner_service.store.attempts import ReproductionStore
from planner_service.store.checkup import findings
from planner_service.store.engine import open_engine
from planner_service.store.events import EventStore
from planner_service.store.migrate import upgrade
from planner_service.store.records import NO_PROGRESS, Checkpoint, Claim, NewSearch
from planner_service.store.searches import SearchStore
from tests.crash.steady_solver import NAME as STEADY
from tests.crash.steady_solver import OPTIMUM
from tests.service.fake_solver import NAME as FAKE
from tests.service.fake_solver import FakeSolver
from tests.service.servers import start_server, start_worker

FAST = {"lease_s": 600, "heartbeat_s": 0.1, "cancel_grace_s": 0.3, "concurrent_searches": 1, "search_max_attempts": 3}
PROBLEM = {
    "model": {"preset": "llama-3.1-8b"},
    "workload": {"sequence_lengths": {"constant": 2048}, "global_batch": {"sequences": 64}},
    "cluster": {"groups": [{"name": "a", "device": "H100-SXM5-80", "nodes": 2}]},
    "framework": "any",
}


def progress(done=0, total=9, incumbent=None, bound=None):
    """Progress as a solver tells it."""
    gap = (incumbent - bound) / incumbent if incumbent and bound is not None else None
    return {"done": done, "total": total, "incumbent": incumbent, "bound": bound, "gap": gap}


class TestBest:
    """What is known over all attempts."""

    def test_each_number_is_the_better_one(self):
        merged = merge(progress(5, 9, 2.0, 1.0), progress(1, None, 3.0, 1.5))
        assert merged == progress(5, 9, 2.0, 1.5)
        assert merge(progress(), progress(1, 9, 3.0, None))["incumbent"] == 3.0
        assert merge(progress(2, 9, 2.0, 1.0), progress(9, 9, 1.2, 1.9)) == progress(9, 9, 1.2, 1.2)

    def test_the_layout_belongs_to_the_incumbent(self):
        best = Best()
        best.learn(progress(1, 9, 3.0, 0.0), {"of": 3})
        assert (best.layout, best.improved, best.stored) == ({"of": 3}, True, False)
        best.mark_stored()
        best.learn(progress(2, 9, 3.5, 0.5), {"of": 3.5})
        assert (best.layout, best.improved, best.stored) == ({"of": 3}, False, False)
        assert best.checkpoint == Checkpoint('{"of":3}', 3.0, 0.5)
        best.mark_stored()
        best.learn(progress(1, 9, 3.0, 0.5), None)
        assert best.stored

    def test_numbers_without_a_checkpoint_are_forgotten(self):
        told = orjson.dumps(progress(4, 9, 2.0, 1.0)).decode()
        assert known_before(told, None).text == NO_PROGRESS
        assert known_before(told, Checkpoint('{"a":1}', 2.0, 1.0)).progress["incumbent"] == 2.0


def test_the_start_of_a_claim():
    """The layout and bound of the search itself, and the layouts of its neighbours' plans."""
    results = ('{"plan":{"layout":{"n":1}}}', '{"status":"infeasible","plan":null}', "null")
    claim = Claim("i", "{}", 1, NO_PROGRESS, Checkpoint('{"own":1}', 2.0, 1.0), results)
    start = start_of(start_document(claim))
    assert (start.layouts, start.near, start.bound) == (({"own": 1},), ({"n": 1},), 1.0)
    nothing = start_of(start_document(Claim("i", "{}", 1)))
    assert (nothing.layouts, nothing.near, nothing.bound) == ((), (), None)


def test_how_a_child_ended():
    """In words that go into the reproduction."""
    assert ChildEnded(-signal.SIGKILL).ending == "its process was killed by signal 9 (SIGKILL)"
    assert ChildEnded(3).ending == "its process ended with exit code 3"


def test_a_near_result_is_the_first_incumbent():
    """Other batch, one node fewer: the solver begins with the known plan, adapted; the answer is the same as without."""
    solver = RealSolver()
    layout = orjson.loads(solver.search(PROBLEM, lambda: False, lambda _: None, lambda: False).result)["plan"]["layout"]
    other = orjson.loads(orjson.dumps(PROBLEM))
    other["workload"]["global_batch"]["sequences"] = 96
    fewer = orjson.loads(orjson.dumps(PROBLEM))
    fewer["cluster"]["groups"][0]["nodes"] = 1
    digests = {solver.check(problem).near_digest for problem in (PROBLEM, other, fewer)}
    assert len(digests) == 1
    assert solver.check({**PROBLEM, "model": {"preset": "llama-3.1-70b"}}).near_digest not in digests
    for problem in (other, fewer):
        told, layouts = [], []
        near = start_of({"layouts": [], "near": [layout], "bound": None})
        seeded = solver.search(
            problem,
            lambda: False,
            told.append,
            lambda: False,
            start=near,
            on_incumbent=lambda value, make: layouts.append((value, make())),  # noqa: B023 (used before the next round)
        )
        assert told[0]["done"] == 0
        assert told[0]["incumbent"] == layouts[0][0]
        evaluator = core.Evaluator(core.normalise(core.parse_problem(problem)))
        plan = evaluator.plan(core.Layout.model_validate(layouts[0][1]))
        assert (plan.prediction.step_time_s, plan.prediction.verdict) == (layouts[0][0], "safe")
        assert seeded.result == solver.search(problem, lambda: False, lambda _: None, lambda: False).result


@pytest.fixture
def place(tmp_path):
    """A migrated database file: its URL, a store, and the processes to end."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    engine = open_engine(url)
    upgrade(engine)
    processes = []
    yield url, SearchStore(engine), engine, processes
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        process.stdout.close()
    engine.dispose()


def queued(store, solver, **behaviour):
    """A search in the queue."""
    problem = {"model": {}, "workload": {}, "cluster": {}, "behaviour": behaviour}
    checked = solver.check(problem)
    new = NewSearch(orjson.dumps(problem).decode(), checked.problem_digest, checked.request_digest, versions=checked.versions)
    return store.submit(new).search.id


def until(condition, timeout_s=60.0):
    """What the condition gives once it gives something."""
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.02)
    return found


def ended(store, search_id):
    """The search once it has ended."""
    return until(lambda: (found := store.get(search_id)).state in TERMINAL and found)


def test_a_worker_runs_the_queue(place):
    """Without any server; SIGTERM gives a running search back without costing an attempt."""
    url, store, engine, processes = place
    first = queued(store, FakeSolver(), name="w", steps=4, step_s=0.05)
    processes.append(start_worker(url, STEADY, **FAST))
    found = ended(store, first)
    assert found.state is State.DONE
    assert orjson.loads(found.result)["value"] == OPTIMUM
    second = queued(store, FakeSolver(), name="x", steps=1, step_s=60)
    until(lambda: store.get(second).state is State.RUNNING)
    processes[0].send_signal(signal.SIGTERM)
    processes[0].wait(60)
    assert store.get(second).state is State.QUEUED
    assert findings(engine) == []


def test_a_server_takes_over_from_a_dead_worker(place):
    """On the same machine without waiting for the lease (600 s), and with what the worker had found."""
    url, store, engine, processes = place
    search_id = queued(store, FakeSolver(), name="t", steps=600, step_s=0.1)
    worker = start_worker(url, STEADY, **FAST)
    processes.append(worker)
    until(lambda: (orjson.loads(store.get(search_id).progress)["bound"] or 0) > 0.05)
    _, server = start_server(url, STEADY, **FAST)
    processes.append(server)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()

    def told_by(attempt):
        log = EventStore(engine).after(search_id, 0, 1000)
        start = next((event.seq for event in log if f'"attempt":{attempt}' in event.data), None)
        later = [event for event in log if start is not None and event.seq > start and event.kind != "state"]
        return start, [(event.seq, orjson.loads(event.data)) for event in later]

    until(lambda: len(told_by(2)[1]) > 2)
    start, after = told_by(2)
    before = [data for seq, data in told_by(1)[1] if seq < start]
    assert before[-1]["bound"] > 0.05
    assert all(data["bound"] >= before[-1]["bound"] for _, data in after)
    assert all(data["incumbent"] <= before[-1]["incumbent"] for _, data in after)
    store.cancel(search_id)
    found = ended(store, search_id)
    assert orjson.loads(found.result)["value"] <= before[-1]["incumbent"]


@pytest.mark.parametrize("deaf", [False, True])
def test_cancellation_reaches_a_worker(place, deaf):
    """Whoever takes the cancellation, the worker's child stops within about a second."""
    url, store, _, processes = place
    processes.append(start_worker(url, STEADY, **FAST | {"heartbeat_s": 2}))
    search_id = queued(store, FakeSolver(), name="c", steps=1, step_s=60, deaf=deaf)
    until(lambda: orjson.loads(store.get(search_id).progress)["total"])
    began_s = time.monotonic()
    store.cancel(search_id)
    found = ended(store, search_id)
    assert found.state is State.CANCELLED
    assert time.monotonic() - began_s < 5.0  # 0.6 s on a machine with nothing else to do
    assert (found.result is None) == deaf


def test_a_poisoned_search_leaves_its_reproduction(place):
    """How each attempt ended is kept with the request."""
    url, store, engine, processes = place
    search_id = queued(store, FakeSolver(), crash=True)
    processes.append(start_worker(url, FAKE, **FAST))
    found = ended(store, search_id)
    assert orjson.loads(found.error)["code"] == "poisoned"
    body = orjson.loads(ReproductionStore(engine).get(search_id).body)
    assert body["problem"]["behaviour"] == {"crash": True}
    assert body["versions"] == {"solver": "fake"}
    assert [attempt["ending"] for attempt in body["attempts"]] == ["its process was killed by signal 9 (SIGKILL)"] * 3


def test_admission(tmp_path):
    """What is too large is refused with a pointer; what is malformed, too; what cannot be told in time is let in."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'a.db'}", search_max_skeletons=100)
    admission = Admission(settings, FAKE)
    try:
        admission.check({"behaviour": {"skeletons": 100}})
        with pytest.raises(Problem) as refused:
            admission.check({"behaviour": {"skeletons": 101}})
        assert refused.value.status == 422
        assert refused.value.errors[0].pointer == "/constraints/allowed"
        admission.check({"behaviour": {"admission_crash": True}})
    finally:
        admission.stop()


def test_admission_counts_the_space_itself():
    """The solver's own count decides; the limit is the server's."""
    solver = RealSolver()
    count = solver.admit(PROBLEM, 10**9)
    assert count > 100
    assert solver.admit(PROBLEM, count) == count
    with pytest.raises(Problem, match="more than 100 skeletons"):
        solver.admit(PROBLEM, 100)
