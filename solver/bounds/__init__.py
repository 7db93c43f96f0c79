"""Admissible bounds: never above the price of any layout of a cell."""

from solver.bounds.skeleton import SkeletonBounds, skeleton_bounds

__all__ = ["SkeletonBounds", "skeleton_bounds"]
