"""Examines how well a model answers, and why it answers as it does."""
