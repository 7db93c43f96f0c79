"""Names of lease holders: a dead predecessor is recognised, a living or distant one never taken for dead."""

from __future__ import annotations

import os
import subprocess
import sys

from planner_service.jobs.owner import dead_owners, machine_name, new_owner, process_start


def test_the_living_are_not_dead():
    """This very process, with and without the number of a slot."""
    owner = new_owner()
    assert dead_owners([owner, f"{owner}-0"]) == []
    assert len(f"{owner}-63") <= 64


def test_an_ended_process_is_dead():
    """Its process is gone."""
    program = "from planner_service.jobs.owner import new_owner; print(new_owner())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    owner = made.stdout.strip()
    assert dead_owners([f"{owner}-1"]) == [f"{owner}-1"]


def test_a_reused_process_number_is_dead():
    """Our number, but started at another time."""
    owner = f"{machine_name()}-{os.getpid()}-1-abcdef01-0"
    assert process_start(os.getpid()) != "1"
    assert dead_owners([owner]) == [owner]


def test_others_are_left_to_their_lease():
    """Another machine, an unknown start time, a name in another form."""
    pid = os.getpid()
    assert dead_owners([f"00000000-{pid}-1-ab-0", f"{machine_name()}-{pid}-0-ab-0", "someone", ""]) == []
