"""Estimates what a run takes, from what earlier runs have measured."""
