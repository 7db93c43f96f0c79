"""Load on a running server: a generator that is cheap enough to share two processors with what it measures."""
