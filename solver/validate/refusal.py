"""A row that is not predicted, and why."""

from __future__ import annotations


class Refused(Exception):
    """The reason is shown beside the row and counted in the summary."""
