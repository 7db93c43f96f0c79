"""Seconds of one layer kind at an array of points, one file an operator; `times` puts them together."""

from solver.cost.operators.context import LayerCosts, Points
from solver.cost.operators.recompute import selective_modules
from solver.cost.operators.times import fill_times

__all__ = ["LayerCosts", "Points", "fill_times", "selective_modules"]
