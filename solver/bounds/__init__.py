"""Admissible bounds: never above the price of any layout of a cell."""

from solver.bounds.skeleton import SkeletonBounds, average_bounds, skeleton_bounds

__all__ = ["SkeletonBounds", "average_bounds", "skeleton_bounds"]
