"""What the tests of the store share: a clock in hand, searches made of names, calls at the same moment."""

from __future__ import annotations

import threading

from planner_service.store.records import NewSearch

SECOND_US = 1_000_000
DAY_S = 86_400


class Hand:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now_us = 1_700_000_000 * SECOND_US

    def __call__(self):
        return self.now_us

    def pass_s(self, duration_s):
        self.now_us += int(duration_s * SECOND_US)


def submit(store, name="1", problem=None, **more):
    """A search whose digests are made of the name."""
    return store.submit(NewSearch(f'{{"n":"{name}"}}', (problem or name).rjust(64, "p"), name.rjust(64, "r"), **more))


def run_together(calls):
    """Runs the calls in threads that start at the same moment."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
