"""What all tests share: the browser, and the account of tests that were skipped for want of something.

With PLANNER_TEST_REQUIRE=postgres,chromium a skip for want of one of these is a failure.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.environment import NEEDS, find_chromium, missing_need, required


@pytest.fixture(scope="session")
def chromium():
    """The path of a browser; skips when there is none."""
    found = find_chromium()
    if found is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not on PATH, and PLANNER_TEST_CHROMIUM is not set")
    return found


def pytest_configure(config):
    """Wrong names in PLANNER_TEST_REQUIRE end the run at its start."""
    try:
        required()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A skip for want of something required is a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = reason_of(report)
        if missing_need(reason) in required():
            report.outcome, report.longrepr = "failed", f"required by PLANNER_TEST_REQUIRE: {reason}"
    return report


def pytest_terminal_summary(terminalreporter):
    """Says how many tests were skipped for want of what."""
    skipped = terminalreporter.stats.get("skipped", [])
    counts = Counter(missing_need(reason_of(report)) for report in skipped)
    for need in NEEDS:
        terminalreporter.write_line(f"skipped because there is no {need}: {counts[need]}")


def reason_of(report):
    """The text a test was skipped with."""
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
