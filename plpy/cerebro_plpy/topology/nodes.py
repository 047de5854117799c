"""Segment sessions on a cluster of nodes: a run uses a new session once all nodes answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg2

from cerebro_plpy.commands import Reach, Sent
from cerebro_plpy.errors import QUERY_CANCELED, SEGMENT_GONE, CerebroError
from cerebro_plpy.topology import loopback
from cerebro_plpy.topology.local import Key, LocalTopology

if TYPE_CHECKING:
    from cerebro_plpy.store import session
    from cerebro_plpy.topology.loopback import LoopbackSession


class NodesAway(psycopg2.OperationalError):
    """Raised if a session is open, but a node of the cluster does not answer."""


class ClusterTopology(LocalTopology):
    """A topology whose segment sessions reach other nodes of a cluster."""

    # The nodes in the words of the cluster's users, and how to find those that do not answer.
    nodes: str
    hint: str
    _ends = False

    def stop(self) -> None:
        # How the run has ended is stored on the coordinator, whatever the other nodes do.
        self._ends = True
        super().stop()

    def _opened(self, key: Key) -> LoopbackSession:
        """Open a session and return it; during a run, raise NodesAway if a node does not answer.

        The caller then tries again, since the node may be restarting.
        """
        opened = super()._opened(key)
        if self._held is not None and not self._ends:
            try:
                opened.begin(Sent(Reach()))
                self._finish([opened])
                opened.result()
            except CerebroError as error:
                self._forget(opened)
                if error.sqlstate == QUERY_CANCELED:
                    raise
                raise NodesAway(error.message) from None
        return opened

    def _refusal(self, error: psycopg2.Error) -> CerebroError:
        return self.refuse(self._target, error)

    @classmethod
    def refuse(cls, target: session.LoginTarget, error: psycopg2.Error) -> CerebroError:
        """Return the error for a session that could not be opened or does not reach all nodes."""
        if not isinstance(error, NodesAway):
            return loopback.refused(target, error)
        return CerebroError(
            f"not all {cls.nodes} of the cluster answer",
            detail=str(error),
            hint=f"{cls.hint} When all answer, cerebro.resume continues the run.",
            sqlstate=SEGMENT_GONE,
        )
