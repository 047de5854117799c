"""Carries out a run that is written down: its loop, its decisions, its end, and its continuation."""
