"""Citus: a segment's session is on the worker that has its rows, and leaves there what it makes.

What a run is asked for stays on the coordinator, which tells it (`supply.py`).
"""
