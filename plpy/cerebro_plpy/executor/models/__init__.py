"""Registered models: their versions, aliases and rights, and their retraining."""
