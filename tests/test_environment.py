"""The test environment: what is missing is counted, and fails the run when it is required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import NEEDS, find_chromium, missing_need, required

ROOT = Path(__file__).resolve().parent.parent
SKIPS = """
import pytest

@pytest.mark.parametrize("need", ["PLANNER_SHARED_DIR", "PLANNER_TEST_PG_URL", "PLANNER_TEST_PG_URL", "something else"])
def test_skipped(need):
    pytest.skip(f"not here: {need}")
"""


def run_pytest(directory, **environment):
    """The output and exit code of a run over a file of skipping tests, under our conftest."""
    (directory / "test_skips.py").write_text(SKIPS)
    (directory / "conftest.py").write_text("from tests.conftest import *  # noqa: F403\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory), str(directory)]
    known = {name: value for name, value in os.environ.items() if name != "PLANNER_TEST_REQUIRE"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env={**known, "PYTHONPATH": str(ROOT), **environment}
    )
    return done.stdout + done.stderr, done.returncode


def test_skips_are_counted(tmp_path):
    """The last lines name what was not there."""
    output, code = run_pytest(tmp_path)
    assert code == 0
    assert "skipped because there is no shared data: 1" in output
    assert "skipped because there is no postgres: 2" in output
    assert "skipped because there is no chromium: 0" in output


def test_a_required_skip_fails(tmp_path):
    """Only what is named in PLANNER_TEST_REQUIRE; wrong names end the run."""
    output, code = run_pytest(tmp_path, PLANNER_TEST_REQUIRE="postgres,chromium")
    assert code == 1
    assert "2 failed, 2 skipped" in output
    assert "required by PLANNER_TEST_REQUIRE" in output
    output, code = run_pytest(tmp_path, PLANNER_TEST_REQUIRE="postgras")
    assert code == 4
    assert "postgras is none of" in output


def test_needs_are_told_apart():
    """By the variable in the reason."""
    assert {missing_need(f"... {variable} ...") for variable in NEEDS.values()} == set(NEEDS)
    assert missing_need("no reason") is None
    assert required({"PLANNER_TEST_REQUIRE": "postgres, chromium"}) == ["postgres", "chromium"]
    assert required({}) == []
    assert find_chromium({"PLANNER_TEST_CHROMIUM": "/opt/browser"}) == "/opt/browser"


@pytest.mark.parametrize("script", ["tests/run", ".ci/run"])
def test_scripts_are_well_formed(script):
    """Bash reads them, and they can be started."""
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_the_browser_shows_a_page(chromium, tmp_path):
    """A page with a script, in the browser that the tests of the web pages use."""
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>t</title><p id=a>no</p><script>a.textContent = 6 * 7</script>")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert '<p id="a">42</p>' in shown.stdout
