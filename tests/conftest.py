"""What all tests share: the count of tests that need the shared data folder and did not find it."""

from __future__ import annotations

import pytest

SHARED_MARK = "PLANNER_SHARED_DIR"
"""tests that read the shared folder in place name this variable in the reason they are skipped with"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for want of the shared data."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if SHARED_MARK in str(report.longrepr)]
    terminalreporter.write_line(f"skipped because the shared data folder is not here: {len(skipped)}")
