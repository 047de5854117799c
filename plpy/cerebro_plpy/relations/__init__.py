"""Finds the paths along foreign keys that begin at an entity's table, and plans features of them. Pure."""
