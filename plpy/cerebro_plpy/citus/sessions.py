"""Segment sessions on Citus: connections to the workers that have the segments' rows."""

from __future__ import annotations

import os

import psycopg2

from cerebro_plpy.errors import SEGMENT_GONE, CerebroError
from cerebro_plpy.store import session
from cerebro_plpy.store.runs.drivers import Behind
from cerebro_plpy.topology.local import Key
from cerebro_plpy.topology.loopback import CONTROL, LoopbackSession
from cerebro_plpy.topology.nodes import ClusterTopology, NodesAway


class LoginRefused(psycopg2.OperationalError):
    """Raised if a worker refuses the login of a segment session."""


class CitusTopology(ClusterTopology):
    """A topology whose segment sessions are on the workers of a Citus cluster."""

    name = "citus"
    nodes = "nodes"
    hint = "citus_check_cluster_node_health() says which do not."

    def _behind(self) -> Behind:
        # The sessions on workers are processes of other servers, and end with their connections.
        own_pid = os.getpid()
        return Behind(own_pid, [own_pid] if self._bounds.background else [])

    def _opened(self, key: Key) -> LoopbackSession:
        try:
            return super()._opened(key)
        except psycopg2.OperationalError as error:
            if key[1] == CONTROL or isinstance(error, NodesAway):
                raise
            raise LoginRefused(str(error)) from None

    @classmethod
    def refuse(cls, target: session.LoginTarget, error: psycopg2.Error) -> CerebroError:
        if not isinstance(error, LoginRefused):
            return super().refuse(target, error)
        return CerebroError(
            "a worker of the cluster refuses the session that a run needs",
            detail=f"The login was answered: {str(error).strip()}",
            hint="The owner of the extension must be able to log in from the coordinator to each worker;"
            " docs/citus.md says how. When all workers answer, cerebro.resume continues the run.",
            sqlstate=SEGMENT_GONE,
        )
