"""Greenplum: all that only a cluster needs. `server.py` says how the rest of the package reaches it.

The coordinator has the tables, a segment's own process has the rows and the engine. `protocol.py` tells what
passes between them.
"""
