"""What can be named: devices on the command line and over HTTP, frameworks with their rules."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from fastapi.testclient import TestClient

from planner_service.app import create_app
from planner_service.cli import commands
from planner_service.solver_port import DEFAULT_SOLVER


@pytest.fixture
def real_client(settings: Any) -> Any:
    """A client of the service with the real solver."""
    with TestClient(create_app(settings, DEFAULT_SOLVER)) as made:
        yield made


def test_devices_on_the_command_line(real_client: TestClient, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    """A table to read, and the bytes of HTTP."""
    monkeypatch.delenv("PLANNER_URL", raising=False)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["planner", "devices", *arguments])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        assert ended.value.code == 0
        return capfdbinary.readouterr()[0].decode()

    table = run()
    for words in ("H100-SXM5-80", "TPUv5p", "MI300X-192", "fp8 1979, bf16 989", "h100-sxm"):
        assert words in table
    assert run("--json").strip() == real_client.get("/v1/devices").text
    assert len(json.loads(run("--json"))["devices"]) >= 55


def test_frameworks_tell_their_rules(real_client: TestClient) -> None:
    """Versions that have rules, and of the newest every rule with the checks that notice."""
    found = {entry["name"]: entry for entry in real_client.get("/v1/frameworks").json()["frameworks"]}
    megatron = found["megatron-core"]
    assert megatron["versions"][:3] == ["latest-known", "0.20", "0.16"]
    rules = {rule["id"]: rule for rule in megatron["rules"]}
    assert rules["MC14"]["fires"] == ["arguments", "build"]
    assert rules["MC23"]["fires"] == ["first_step"]
    assert found["any"]["exports"] is False
