"""Registered models: versions, aliases, rights, and training again."""
