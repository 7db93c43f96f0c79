"""README command one with the real solver: the packaged example over HTTP, certified within the promised gap and time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.ci
@pytest.mark.timeout(180)
def test_the_packaged_demo(tmp_path):
    """A certified plan of at most 5 % gap in at most 60 s, progress, certificate, curl; afterwards nothing is left running."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "150"}
    command = [sys.executable, "-P", "-m", "planner_service.cli", "demo"]
    made = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=170)
    assert made.returncode == 0, made.stderr[-2000:]
    assert "cells closed" in made.stderr
    searched_s = float(re.search(r"done after ([\d.]+) s", made.stdout).group(1))
    gap_percent = float(re.search(r"gap ([\d.]+) %", made.stdout).group(1))
    assert gap_percent <= 5.0
    assert searched_s <= 60.0
    for words in (
        "Layout",
        "Memory of the worst rank",
        "Where the time goes",
        "Why this plan",
        "Certificate",
        "curl -sS",
        "service stopped",
    ):
        assert words in made.stdout
    assert list(tmp_path.iterdir()) == []
