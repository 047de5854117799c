"""Carries out a run that is stored: its loop, its decisions, its end, and its continuation."""
