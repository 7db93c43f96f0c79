"""`ask(problem, **words)`: what `planner evaluate` answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.user_cases.asking import Answer, Ask, planner_evaluate


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.delenv("PLANNER_URL", raising=False)

    def run(problem: dict[str, Any], **words: Any) -> Answer:
        return planner_evaluate(tmp_path, problem, words)

    return run
