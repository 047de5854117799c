"""Greenplum: a segment session is a loopback connection to the coordinator.

What it is told to do it has done by its own process on the segment (segment/courier.py), the same for as long
as the session lives: rows and compiled models stay there.
"""

from __future__ import annotations

from cerebro_plpy.topology.local import LocalTopology


class GreenplumTopology(LocalTopology):
    """The segments of one run as sessions on the coordinator."""

    name = "greenplum"
