"""What the routes work with: one bundle made at start and handed to every request through `app.state`."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from sqlalchemy import Engine

from planner_service.jobs.admission import Admission
from planner_service.jobs.evaluator import Evaluator
from planner_service.jobs.housekeeping import Housekeeper
from planner_service.jobs.runner import Runner
from planner_service.settings import Settings
from planner_service.solver_port import SolverPort, load_solver
from planner_service.store.engine import open_engine
from planner_service.store.events import EventStore
from planner_service.store.eviction import EvictionStore
from planner_service.store.leases import LeaseStore
from planner_service.store.migrate import upgrade
from planner_service.store.plans import PlanStore
from planner_service.store.profiles import ProfileStore
from planner_service.store.searches import SearchStore


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a running server."""

    settings: Settings
    engine: Engine
    solver: SolverPort
    searches: SearchStore
    plans: PlanStore
    events: EventStore
    profiles: ProfileStore
    runner: Runner
    housekeeper: Housekeeper
    evaluator: Evaluator
    admission: Admission


def start_services(settings: Settings, solver_name: str) -> Services:
    """Opens and migrates the database and starts the slots."""
    engine = open_engine(settings.database_url)
    upgrade(engine)
    solver = load_solver(solver_name)
    runner, housekeeper = start_jobs(engine, settings, solver_name, solver.versions())
    return Services(
        settings,
        engine,
        solver,
        SearchStore(engine, max_queued=settings.max_queued_searches),
        PlanStore(engine),
        EventStore(engine),
        ProfileStore(engine),
        runner,
        housekeeper,
        Evaluator(settings, solver_name),
        Admission(settings, solver_name),
    )


def start_jobs(engine: Engine, settings: Settings, solver_name: str, versions: str) -> tuple[Runner, Housekeeper]:
    """Starts the slots that run searches, for a server or a worker."""

    def leases_of(owner: str) -> LeaseStore:
        return LeaseStore(engine, owner, settings.lease_s, settings.search_max_takeovers, versions=versions)

    runner = Runner(leases_of, settings, solver_name)
    housekeeper = Housekeeper(runner, EvictionStore(engine), settings)
    runner.start()
    housekeeper.start()
    return runner, housekeeper


def stop_services(services: Services) -> None:
    """Puts running searches back into the queue, ends all child processes and closes the database."""
    services.housekeeper.stop()
    services.runner.stop()
    services.evaluator.stop()
    services.admission.stop()
    services.engine.dispose()


def services_of(request: Request) -> Services:
    """The bundle of the server that got this request."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services
