"""The grids and lists of MADlib, and the space of configs that they span."""
