"""One batch of kill -9 cycles in a fresh world, and what it measured."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field

import orjson

from planner_service.solver_adapter import RealSolver
from planner_service.solver_port import DEFAULT_SOLVER
from tests.crash.steady_solver import NAME as STEADY
from tests.crash.steady_solver import OPTIMUM
from tests.crash.witness import Witness
from tests.crash.world import parent_of, running_world

ROLES = ("server", "worker", "child")
END_S = 180.0
SEARCHING_S = 20.0
KEPT_BUSY = 3
REAL = {
    "model": {"preset": "llama-3.1-70b"},
    "cluster": {"groups": [{"name": "h100", "device": "H100-SXM5-80", "nodes": 4}]},
    "framework": "any",
}


@dataclass
class Measured:
    """Seconds of one batch, and counts."""

    cycles: int = 0
    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    searches: int = 0
    orphan_s: list[float] = field(default_factory=list)
    restart_s: list[float] = field(default_factory=list)
    cancel_s: list[float] = field(default_factory=list)


def steady_problem(name, generator):
    """A search of 0.2 to 1.5 seconds."""
    behaviour = {"name": name, "steps": generator.randrange(4, 16), "step_s": generator.uniform(0.05, 0.1)}
    return {"model": {}, "workload": {}, "cluster": {}, "behaviour": behaviour}


def real_problem(name, generator):
    """A search of the solver itself, other global batch every time."""
    batch = 8 * (64 + int(name.rpartition("-")[2]) % 512)
    lengths = {"counts": [[2048, 10], [4096, generator.randrange(1, 9)]]}
    workload = {"sequence_lengths": lengths, "max_sequence_length": 4096, "batching": "padded"}
    return {**REAL, "workload": {**workload, "global_batch": {"sequences": batch}, "scenarios": {"batches": 2}}}


def run_batch(database_url, cycles, seed, real=False, cancels=5):
    """Kills `cycles` times at random moments; raises AssertionError when a promise is broken."""
    generator, measured = random.Random(seed), Measured()
    solver, make = (DEFAULT_SOLVER, real_problem) if real else (STEADY, steady_problem)
    with running_world(database_url, solver) as world:
        witness = Witness(world.engine)
        problems = {}
        for cycle in range(cycles):
            submit(world, witness, problems, make, generator, f"{seed}-{cycle}")
            time.sleep(generator.uniform(0.0, 0.8))
            one_cycle(world, witness, generator, measured)
            measured.cycles += 1
        wait_for_ends(world, witness)
        check_answers(witness, problems, real)
        measured.searches = len(witness.accepted)
        for number in range(cancels if not real else 0):
            measured.cancel_s.append(cancel_one(world, generator, f"cancel-{seed}-{number}"))
        witness.follow()
        witness.check_database()
    return measured


def submit(world, witness, problems, make, generator, name):
    """New searches until enough wait; now and then one that is known already."""
    number = 0
    while len(witness.unended()) < KEPT_BUSY:
        new = f"{name}{number:02d}"
        problems[new] = make(new, generator)
        witness.accept(new, world.post(problems[new]))
        number += 1
    again = generator.choice(list(problems))
    witness.accept(again, world.post(problems[again]))


def one_cycle(world, witness, generator, measured):
    """One kill and its repair."""
    role = generator.choice(ROLES)
    if role == "child":
        children = world.children(world.server) + world.children(world.worker)
        for pid in generator.sample(children, min(1, len(children))):
            os.kill(pid, signal.SIGKILL)
    else:
        measured.orphan_s.append(world.kill_process(role))
        began_us, began_s = time.time_ns() // 1000, time.monotonic()
        world.restart(role)
        waited = searching_again(world, witness, began_us, began_s)
        if waited is not None:
            measured.restart_s.append(waited)
    measured.kills[role] += 1
    witness.follow()
    for search_id in witness.unended():
        witness.look(search_id, *world.get(search_id))


def searching_again(world, witness, began_us, began_s):
    """Seconds from the restart until an owner has started a search again; None when nothing was left to start."""
    while time.monotonic() - began_s < SEARCHING_S:
        newest = world.newest_start_us()
        if newest is not None and newest >= began_us:
            return (newest - began_us) / 1e6
        if not world.startable():
            return None
        time.sleep(0.02)
    raise AssertionError("no search was started again")


def wait_for_ends(world, witness):
    """Every acknowledged search is done."""
    end_s = time.monotonic() + END_S
    while witness.unended():
        assert time.monotonic() < end_s, f"never ended: {witness.unended()}"
        for search_id in witness.unended():
            witness.look(search_id, *world.get(search_id))
        time.sleep(0.1)
    for search_id in witness.accepted.values():
        document, content = world.get(search_id)
        witness.look(search_id, document, content)
        assert document["state"] == "done", document
        for plan_id in (document["result"]["plan"]["id"],):
            assert world.http.get(f"{world.url}/v1/plans/{plan_id}").status_code == 200


def check_answers(witness, problems, real):
    """What was killed and restarted has the answer that an undisturbed search has."""
    for name in problems if not real else list(problems)[:2]:
        result = orjson.loads(witness.ends[witness.accepted[name]])["result"]
        assert result["status"] == "optimal"
        if not real:
            assert result["value"] == OPTIMUM
            continue
        undisturbed = orjson.loads(RealSolver().search(problems[name], lambda: False, lambda _: None, lambda: False).result)
        assert undisturbed == result


def cancel_one(world, generator, name):
    """Seconds from the request to cancel until the child that ran the search is gone."""
    behaviour = {"name": name, "steps": 1, "step_s": 60.0, "deaf": generator.random() < 0.5}
    search_id = world.post({"model": {}, "workload": {}, "cluster": {}, "behaviour": behaviour})["id"]
    end_s = time.monotonic() + SEARCHING_S
    while world.get(search_id)[0]["progress"]["total"] is None:
        assert time.monotonic() < end_s, "the search did not start"
        time.sleep(0.02)
    children = world.children(world.server) + world.children(world.worker)
    began_s = time.monotonic()
    response = world.http.post(f"{world.url}/v1/searches/{search_id}:cancel")
    assert response.status_code == 202, response.text
    while all(parent_of(pid) is not None for pid in children):
        assert time.monotonic() - began_s < SEARCHING_S, "a cancelled search goes on"
        time.sleep(0.005)
    taken_s = time.monotonic() - began_s
    while world.get(search_id)[0]["state"] != "cancelled":
        assert time.monotonic() - began_s < SEARCHING_S
        time.sleep(0.02)
    return taken_s
