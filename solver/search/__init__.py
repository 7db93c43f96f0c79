"""Exact search of the stated space."""

from solver.search.answer import Outcome, search

__all__ = ["Outcome", "search"]
