"""Citus: a segment's session is on the worker that has its rows, and stores its states there.

The facts of a run stay on the coordinator, from which the session reads them (`supply.py`).
"""
