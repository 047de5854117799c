"""Segment sessions on Greenplum: loopback connections to the coordinator.

Each session sends the work to its own process on the segment. The process lives as long as the session, and
keeps rows and compiled models in memory. protocol.py describes how commands reach the process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psycopg2

from cerebro_plpy.cluster.protocol import Order, Reply, What
from cerebro_plpy.commands import ConfigCommand, Sent
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.store import guards, interrupts, session
from cerebro_plpy.store.cluster import statements
from cerebro_plpy.topology.loopback import LoopbackSession
from cerebro_plpy.topology.nodes import ClusterTopology


class ClusterSession(LoopbackSession):
    """A connection to the coordinator; its session has a process on each segment where it has worked."""

    def __init__(self, target: session.LoginTarget, settings: Mapping[str, str]) -> None:
        super().__init__(target, settings)
        # By run and segment, the distribution key beside whose rows the process runs that has worked for it.
        self._keys: dict[tuple[int, int], int] = {}
        self._sent: Sent | None = None
        self._place: tuple[int, int] | None = None
        self._is_direct = False
        self._reply = Reply()
        self._began = 0.0

    def begin(self, sent: Sent) -> None:
        self._sent, command = sent, sent.command
        self._place = (command.run_id, command.segment) if isinstance(command, ConfigCommand) else None
        key = self._keys.get(self._place) if self._place is not None and sent.way.direct else None
        self._is_direct = key is not None
        if key is not None:
            order = json.dumps(Order(sent, key).as_dict())
            self._send(statements.work_directly(key), order, sent.shown())
        elif sent.way.stepwise:
            self._send_stepwise(sent)
        else:
            self._keys.clear()
            super().begin(sent)

    def ready(self) -> bool:
        """Return whether the command has been answered.

        If the command was sent directly and the process replied that it lacks something, send the command
        again step by step, so that the session can supply it.
        """
        if not self._has_answered():
            return False
        if self._is_direct:
            self._reply = Reply(**super().result())
            if self._reply.lacking is not None and self._sent is not None:
                self._is_direct = False
                self._send_stepwise(self._sent, self._reply.lacking)
                return False
        return True

    def _send_stepwise(self, sent: Sent, lacking: What | None = None) -> None:
        self._began = time.monotonic()
        bounded = replace(sent, look_seconds=self.look_seconds).as_dict()
        request = bounded if lacking is None else {**bounded, "lacking": lacking}
        self._send(session.STEPWISE_COMMAND, sent.way.name, json.dumps(request))

    def _has_answered(self) -> bool:
        try:
            return super().ready()
        except psycopg2.errors.QueryCanceled as error:
            # The server cancelled the statement itself, so its message does not name the time limit.
            looked = guards.LOOK_GUARD in (error.diag.context or "")
            if looked and 0 < self.look_seconds <= time.monotonic() - self._began:
                raise interrupts.took_too_long(self.look_seconds) from None
            raise

    def result(self) -> Mapping[str, Any]:
        if self._is_direct:
            self.busy = False
            if self._reply.error is not None:
                raise CerebroError(**self._reply.error)
            return self._reply.result or {}
        found = dict(super().result())
        key = found.pop("key", None)
        if key is not None and self._place is not None:
            self._keys[self._place] = key
        return found


class GreenplumTopology(ClusterTopology):
    """A topology whose segment sessions are connections to the coordinator of Greenplum."""

    name = "greenplum"
    kind = ClusterSession
    nodes = "segments"
    hint = "gp_segment_configuration and the logs of the segments say which do not."
