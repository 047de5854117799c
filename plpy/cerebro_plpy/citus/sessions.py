"""Citus: a segment session is a connection to the worker that has the segment's rows."""

from __future__ import annotations

import os

from cerebro_plpy.store.runs.drivers import Behind
from cerebro_plpy.topology.local import LocalTopology


class CitusTopology(LocalTopology):
    """The segments of one run as sessions on the workers of a cluster."""

    name = "citus"

    def _behind(self) -> Behind:
        # The sessions on workers are processes of other servers, and end with their connections.
        own_pid = os.getpid()
        return Behind(own_pid, [own_pid] if self._bounds.background else [])
