"""Visits of several configs as one transaction."""
