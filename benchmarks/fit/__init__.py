"""Fit of the cost model's constants on published training runs (`python -m benchmarks.fit`)."""
