"""What some tests need of the machine, how a test says that it is not there, and which of these must be there."""

from __future__ import annotations

import os
import shutil

NEEDS = {
    "shared data": "PLANNER_SHARED_DIR",
    "postgres": "PLANNER_TEST_PG_URL",
    "chromium": "PLANNER_TEST_CHROMIUM",
}
"""a test that skips for want of one of these names this variable in its reason"""
REQUIRE = "PLANNER_TEST_REQUIRE"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def required(environment=os.environ):
    """Needs whose want is a failure, from PLANNER_TEST_REQUIRE=postgres,chromium."""
    names = [name.strip() for name in environment.get(REQUIRE, "").split(",") if name.strip()]
    unknown = sorted(set(names) - set(NEEDS))
    if unknown:
        raise ValueError(f"{REQUIRE}: {', '.join(unknown)} is none of {', '.join(NEEDS)}")
    return names


def missing_need(reason):
    """The need that a skip reason names, or None."""
    return next((name for name, variable in NEEDS.items() if variable in reason), None)


def find_chromium(environment=os.environ):
    """The browser of PLANNER_TEST_CHROMIUM, else one on PATH, else None."""
    return environment.get("PLANNER_TEST_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
