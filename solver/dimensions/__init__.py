"""Parallel dimensions: how layers are cut over stages and how ranks are laid over devices."""

from solver.dimensions.layers import balanced_bounds, layer_weights, segment_bounds
from solver.dimensions.ranks import RankMap

__all__ = ["RankMap", "balanced_bounds", "layer_weights", "segment_bounds"]
