"""Finds the paths along foreign keys that begin at an entity, and says which features they make. Pure."""
