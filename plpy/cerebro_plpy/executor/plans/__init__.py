"""Explains what a run would take or took, measures for it, and checks the server."""
