"""House rules that a machine can check: layers, types, format, module sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 450


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A tool of this environment, run at the root of the repository."""
    return subprocess.run([str(Path(sys.executable).parent / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True)


def test_modules_are_one_idea_long():
    """No module of the two packages is longer than 450 lines."""
    long = {
        str(path.relative_to(ROOT)): lines
        for package in ("solver", "planner_service")
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert not long


@pytest.mark.ci
def test_imports_point_one_way():
    """import-linter keeps the layers."""
    done = run("lint-imports")
    assert done.returncode == 0, done.stdout


@pytest.mark.ci
def test_types():
    """mypy --strict on the solver."""
    done = run("mypy")
    assert done.returncode == 0, done.stdout


@pytest.mark.ci
@pytest.mark.parametrize("arguments", [("check", "."), ("format", "--check", ".")])
def test_style(arguments: tuple[str, ...]):
    """ruff's rules and format."""
    done = run("ruff", *arguments)
    assert done.returncode == 0, done.stdout
