"""Settings: each one documented with its default, wrong values refused at start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

import planner_service
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.serving import database_url, read_settings, serve_forever
from planner_service.settings import Settings

ROW = re.compile(r"^\| `PLANNER_(\w+)` \| `?([^|`]*)`? \|", re.MULTILINE)


def test_every_setting_is_documented():
    """The table of the README has each variable with its default, and no other."""
    text = (Path(planner_service.__file__).parent / "README.md").read_text(encoding="utf-8")
    documented = {name.lower(): default.strip() for name, default in ROW.findall(text)}
    assert set(documented) == set(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        if field.default_factory is None:
            spelled = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert documented[name] == (spelled.lower() if isinstance(field.default, bool) else spelled)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x", "file.db", "", "sqlite:///"])
def test_databases_that_do_not_work(url):
    """Memory databases and other products are refused."""
    with pytest.raises(ValidationError):
        Settings(database_url=url)


def test_postgresql_is_driven_by_psycopg():
    """Both usual spellings."""
    for url in ("postgresql://u@h/d", "postgres://u@h/d", "postgresql+psycopg://u@h/d"):
        assert Settings(database_url=url).database_url == "postgresql+psycopg://u@h/d"


def test_environment_and_command_line(monkeypatch):
    """PLANNER_* is read; the command line goes before it."""
    monkeypatch.setenv("PLANNER_PORT", "1234")
    assert read_settings(port=None).port == 1234
    assert read_settings(port=5).port == 5
    monkeypatch.setenv("PLANNER_PORT", "many")
    with pytest.raises(UnreadableInput, match="port"):
        read_settings()


def test_only_loopback(tmp_path, monkeypatch):
    """Without keys no other address, unless it is said."""
    monkeypatch.delenv("PLANNER_ALLOW_REMOTE", raising=False)
    with pytest.raises(UnreadableInput, match="localhost"):
        serve_forever("0.0.0.0", 0, f"sqlite:///{tmp_path / 'x.db'}")


def test_a_taken_port_is_named(tmp_path):
    """Wrong usage, not a traceback."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnreadableInput, match="cannot listen"):
            serve_forever(None, taken.getsockname()[1], f"sqlite:///{tmp_path / 'x.db'}")


def test_a_plain_path_is_a_sqlite_file(tmp_path):
    """`--database plans.db` needs no URL; URLs pass through."""
    assert database_url(str(tmp_path / "plans.db")) == f"sqlite:///{tmp_path / 'plans.db'}"
    assert database_url("postgresql://host/name") == "postgresql://host/name"
    assert database_url(None) is None
