"""`planner db ...` and `planner doctor`: exit codes and what they say."""

from __future__ import annotations

import orjson
import pytest
from typer.testing import CliRunner

from planner_service.cli import doctor
from planner_service.cli.commands import app
from planner_service.settings import Settings
from planner_service.states import Event
from planner_service.store.engine import open_engine, writing
from planner_service.store.leases import LeaseStore
from planner_service.store.migrate import downgrade, head_revision, upgrade
from planner_service.store.records import NewSearch, StoredPlan
from planner_service.store.searches import SearchStore
from planner_service.store.tables import plans


@pytest.fixture
def run():
    """Runs the command line; gives exit code and output."""

    def call(*arguments):
        result = CliRunner().invoke(app, list(arguments))
        return result.exit_code, result.output

    return call


@pytest.fixture
def database(tmp_path):
    """Path, engine and store of a migrated database with a done and a poisoned search."""
    path = tmp_path / "cli.db"
    engine = open_engine(f"sqlite:///{path}")
    upgrade(engine)
    store, leases = SearchStore(engine), LeaseStore(engine, "a-1-1-1", 60.0, 3)
    store.submit(NewSearch('{"n":1}', "p" * 64, "r" * 64))
    leases.finish(leases.claim().id, "{}", True, [StoredPlan("a" * 64, "{}", "{}")], None)
    poisoned = store.submit(NewSearch('{"n":2}', "q" * 64, "s" * 64)).search.id
    leases.claim()
    leases.fail(poisoned, '{"code":"poisoned"}', event=Event.POISON, ending="its process was killed")
    yield str(path), engine, poisoned
    engine.dispose()


def test_upgrade(run, tmp_path):
    """A database that is not there yet is made."""
    code, output = run("db", "upgrade", "--database", str(tmp_path / "new.db"))
    assert (code, output.strip()) == (0, f"database at revision {head_revision()}")


def test_status(run, database):
    """Counts, bytes, and where to look after a poisoned search."""
    path, engine, poisoned = database
    code, output = run("db", "status", "--database", path)
    assert code == 0
    assert "searches done: 1" in output
    assert "searches failed: 1" in output
    assert f"planner db reproduction {poisoned}" in output
    downgrade(engine, "0001")
    code, output = run("db", "status", "--database", path)
    assert code == 5
    assert "planner db upgrade" in output


def test_check(run, database):
    """Nothing, then damage."""
    path, engine, _ = database
    assert run("db", "check", "--database", path) == (0, "no findings\n")
    with writing(engine) as connection:
        connection.execute(plans.update().values(body="{ }"))
    code, output = run("db", "check", "--database", path)
    assert code == 5
    assert "checksum" in output


def test_evict(run, database):
    """What is old goes, as the options say."""
    path, _, _ = database
    assert "evicted 0 searches and 0 plans" in run("db", "evict", "--database", path, "--older-than-days", "1")[1]
    code, output = run("db", "evict", "--database", path, "--older-than-days", "0.0000000001")
    assert code == 0
    assert "evicted 2 searches and 1 plans; 0 bytes are left" in output


def test_reproduction(run, database):
    """The document itself, or wrong usage."""
    path, _, poisoned = database
    code, output = run("db", "reproduction", poisoned, "--database", path)
    assert code == 0
    assert orjson.loads(output)["problem"] == {"n": 2}
    for wrong in ("0" * 26, "nonsense"):
        assert run("db", "reproduction", wrong, "--database", path)[0] == 64


def test_a_database_that_does_not_answer(run):
    """The service failed."""
    code, output = run("db", "status", "--database", "postgresql://nobody@127.0.0.1:1/none")
    assert code == 5
    assert "does not answer" in output


def test_doctor_finds_what_is_wrong(run, tmp_path, monkeypatch):
    """Each check by its name; one that is wrong makes the exit code 5."""
    monkeypatch.setattr(doctor, "CHECKS", {name: check for name, check in doctor.CHECKS.items() if name != "search"})
    code, output = run("doctor", "--database", str(tmp_path / "d.db"))
    assert code == 0, output
    assert output.count("ok") == 4
    monkeypatch.setenv("PLANNER_HOST", "0.0.0.0")
    code, output = run("doctor", "--database", "sqlite:////nowhere/at/all.db")
    assert code == 5
    assert "PLANNER_ALLOW_REMOTE" in output
    assert "cannot be written" in output


def test_doctor_knows_limits_and_processors(tmp_path):
    """Settings that this machine cannot keep."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'd.db'}", concurrent_searches=64)
    with pytest.raises(doctor.Trouble, match="PLANNER_CONCURRENT_SEARCHES"):
        doctor.check_processors(settings)
    assert "GiB" in doctor.check_limits(settings)


def test_doctor_runs_a_search(tmp_path, monkeypatch):
    """A child process finds a plan; one that dies is trouble."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'd.db'}")
    monkeypatch.setattr(doctor, "DEFAULT_SOLVER", "tests.service.fake_solver:FakeSolver")
    monkeypatch.setattr(doctor, "TINY_PROBLEM", {"model": {}, "workload": {}, "cluster": {}})
    assert "proven" in doctor.check_search(settings)
    monkeypatch.setattr(doctor, "TINY_PROBLEM", {"model": {}, "workload": {}, "cluster": {}, "behaviour": {"crash": True}})
    with pytest.raises(doctor.Trouble, match="SIGKILL"):
        doctor.check_search(settings)
