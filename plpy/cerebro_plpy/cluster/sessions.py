"""Greenplum: a segment session is a loopback connection to the coordinator.

What it is told to do it has done by its own process on the segment, the same for as long as the session
lives: rows and compiled models stay there. protocol.py says how commands reach that process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import psycopg2

from cerebro_plpy.cluster.protocol import Order, Reply
from cerebro_plpy.errors import SEGMENT_GONE, CerebroError
from cerebro_plpy.segment.commands import CommandRequest
from cerebro_plpy.store import guards, interrupts, session
from cerebro_plpy.store.cluster import statements
from cerebro_plpy.topology import loopback
from cerebro_plpy.topology.local import Key, LocalTopology
from cerebro_plpy.topology.loopback import LoopbackSession


class ClusterSession(LoopbackSession):
    """One connection to the coordinator, and a process of its own on each segment where it has worked."""

    def __init__(self, target: session.LoginTarget, settings: Mapping[str, str]) -> None:
        super().__init__(target, settings)
        # By run and segment, the key beside which the process stands that has worked for them.
        self._keys: dict[tuple[int, int], int] = {}
        self._asked: tuple[str, CommandRequest] = "", {}
        self._is_direct = False
        self._reply = Reply()
        self._began = 0.0

    def begin(self, name: str, request: CommandRequest) -> None:
        self._asked = name, request
        key = self._keys.get(_place(request)) if name in session.DIRECT else None
        self._is_direct = key is not None
        if key is not None:
            order = Order(name, request, key).as_json()
            self._send(statements.work_directly(key), order, session.shown(name, request))
        elif name in session.STEPWISE:
            self._send_stepwise(name, request)
        else:
            self._keys.clear()
            super().begin(name, request)

    def ready(self) -> bool:
        """A process that lacks something is told again by way of the session, which can find it."""
        if not self._has_answered():
            return False
        if self._is_direct:
            self._reply = Reply(**super().result())
            if self._reply.lacking is not None:
                name, request = self._asked
                self._is_direct = False
                self._send_stepwise(name, {**request, "lacking": self._reply.lacking})
                return False
        return True

    def _send_stepwise(self, name: str, request: CommandRequest) -> None:
        self._began = time.monotonic()
        self._send(session.STEPWISE_COMMAND, name, json.dumps({**request, "look_seconds": self.look_seconds}))

    def _has_answered(self) -> bool:
        try:
            return super().ready()
        except psycopg2.errors.QueryCanceled as error:
            # The server's word for it; no Python of ours was there to say what it was.
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
        if key is not None:
            self._keys[_place(self._asked[1])] = key
        return found


def _place(request: CommandRequest) -> tuple[int, int]:
    return request["run_id"], request["segment"]


class SegmentsAway(psycopg2.OperationalError):
    """A session is there, and a segment of the cluster does not answer it."""


class GreenplumTopology(LocalTopology):
    """The segments of one run as sessions on the coordinator."""

    name = "greenplum"
    kind = ClusterSession

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
                raise SegmentsAway(error.message) from None
        return opened

    def _refusal(self, error: psycopg2.Error) -> CerebroError:
        return refused(self._target, error)


def refused(target: session.LoginTarget, error: psycopg2.Error) -> CerebroError:
    if not isinstance(error, SegmentsAway):
        return loopback.refused(target, error)
    return CerebroError(
        "not all segments of the cluster answer",
        detail=str(error),
        hint="gp_segment_configuration and the logs of the segments say which do not. When all answer,"
        " cerebro.resume goes on with the run.",
        sqlstate=SEGMENT_GONE,
    )
