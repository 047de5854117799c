"""Greenplum: a segment session is a loopback connection to the coordinator.

What it is told to do it has done by its own process on the segment (segment/courier.py), the same for as long
as the session lives: rows and compiled models stay there.
"""

from __future__ import annotations

import psycopg2

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.topology.local import Key, LocalTopology, LoopbackSession


class GreenplumTopology(LocalTopology):
    """The segments of one run as sessions on the coordinator."""

    name = "greenplum"

    def _opened(self, key: Key) -> LoopbackSession:
        """While a run goes on, wait until every segment answers: one may be starting again."""
        opened = super()._opened(key)
        if self._held is not None:
            try:
                opened.begin("reach", {})
                self._finish([opened])
                opened.result()
            except CerebroError as error:
                self._forget(opened)
                raise psycopg2.OperationalError(error.message) from None
        return opened
