"""Fixtures of the store's tests: every one runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from planner_service.store.engine import open_engine
from planner_service.store.leases import LeaseStore
from planner_service.store.migrate import upgrade
from planner_service.store.plans import PlanStore
from planner_service.store.searches import SearchStore
from tests.conformance.stores import Hand
from tests.service.postgres import database_url, postgres_server

__all__ = ["database_url", "postgres_server"]


@pytest.fixture
def engine(database_url):
    """A migrated database."""
    made = open_engine(database_url)
    upgrade(made)
    yield made
    made.dispose()


@pytest.fixture
def clock():
    """Time under control."""
    return Hand()


@pytest.fixture
def store(engine, clock):
    """Searches as clients see them."""
    return SearchStore(engine, clock, max_queued=50)


@pytest.fixture
def plans(engine, clock):
    """Plans."""
    return PlanStore(engine, clock)


@pytest.fixture
def leases(engine, clock):
    """Makes an owner with a lease of ten seconds, for searches that may be taken over twice."""
    return lambda owner="a", versions="": LeaseStore(engine, owner, 10.0, 2, clock, versions)
