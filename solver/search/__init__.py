"""Exact search of the stated space."""

from solver.search.answer import Outcome, search
from solver.search.count import skeletons_at_least

__all__ = ["Outcome", "search", "skeletons_at_least"]
