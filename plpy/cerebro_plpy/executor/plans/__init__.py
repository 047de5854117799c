"""Explains how long a run would take or took, measures runs for that, and checks the server."""
