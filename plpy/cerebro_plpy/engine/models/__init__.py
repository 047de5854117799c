"""Models in memory: compiled, cut, frozen, and their forward pass."""
