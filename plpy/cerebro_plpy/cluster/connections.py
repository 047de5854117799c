"""Connections from a segment's process to the servers of segments, mainly to its own.

A statement that the coordinator sends is part of a transaction of the whole cluster, and data from another
segment passes through all processes of the session. Over its own connection to one server, a process commits
its results at that server only, and reads a state directly from the server that stores it.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from cerebro_plpy import memory
from cerebro_plpy.cluster.protocol import Where
from cerebro_plpy.database import Database
from cerebro_plpy.errors import ADMIN_SHUTDOWN, CONNECTION_FAILURE, SEGMENT_GONE, CerebroError, from_driver
from cerebro_plpy.store.cluster import servers

CursorWork = Callable[[Any], None]

# How long a server that has refused a login is not tried again: the coordinator can read its rows, too.
_REFUSED_SECONDS = 60.0
# Each wait for a lock ends after a second, to look for a cancel.
_LOCK_WAITS = 30
# The size in which libpq sends data: for larger pieces, both sides would allocate memory each time.
_COPY_BYTES = 8192


class _Logins:
    """The open connections of this process, kept until it ends."""

    def __init__(self) -> None:
        self.own: servers.Login | None = None
        self.open: dict[servers.Login, Any] = {}
        # Which server refused this process, and when.
        self.refused: dict[servers.Login, float] = {}

    def close(self, server: servers.Login) -> None:
        if server in self.open:
            self.open.pop(server).close()


class Connections:
    """A reader and writer of states, visits and evaluations on the servers of segments."""

    def __init__(self, db: Database, tick: Callable[[], None]) -> None:
        self._db, self._tick = db, tick
        self._logins = memory.get_instance(_Logins)

    def state(self, where: Where, run_id: int, mst_key: int, step: int) -> list[memoryview] | None:
        """Return the parts of a state, or None if the server at `where` cannot be read."""
        copied = self._copied(where, servers.read_state(run_id, mst_key, step))
        return None if copied is None else [row[0] for row in servers.rows_of(copied)]

    def evaluations(
        self, where: Sequence[Where], run_id: int, mst_key: int, epoch: int
    ) -> dict[str, list[bytes]] | None:
        """Return all segments' evaluations of a config, by dataset, in segment order.

        Return None if one of the servers cannot be read.
        """
        found: dict[str, dict[int, bytes]] = {}
        for place in {json.dumps(each): each for each in where}.values():
            copied = self._copied(place, servers.read_evaluations(run_id, mst_key, epoch))
            if copied is None:
                return None
            for dataset, segment, data in servers.rows_of(copied):
                found.setdefault(str(dataset, "utf8"), {})[int.from_bytes(segment, "big")] = bytes(data)
        return {dataset: [data for _, data in sorted(of.items())] for dataset, of in found.items()}

    def states(self, run_id: int, keys: Sequence[int], step: int) -> dict[int, list[memoryview]] | None:
        """Return the states of the configs `keys` on this process's own server, each in parts, by `mst_key`.

        Return None if reading fails.
        """
        copied = self._copied(None, servers.read_states(run_id, keys, step))
        if copied is None:
            return None
        found: dict[int, list[memoryview]] = {}
        for mst_key, data in servers.rows_of(copied):
            found.setdefault(int.from_bytes(mst_key, "big"), []).append(data)
        return found

    def write_visits(
        self, visits: Sequence[Mapping[str, Any]], states: Sequence[Sequence[bytes]], now: Callable[[], float]
    ) -> None:
        """Commit visits and the states that they made; `now` returns the time at which they end."""
        clock = time.monotonic()

        def log() -> list[str]:
            each, ended_at = (time.monotonic() - clock) / len(visits), now()
            return [json.dumps([_ended(one, each, ended_at) for one in visits])]

        def write(cursor: Any) -> None:
            rows = _Stream(servers.copied_states(visits, states))
            cursor.copy_expert(servers.BEGIN_WITH_STATE, rows, _COPY_BYTES)
            cursor.execute(servers.END_WITH_VISIT, log())

        try:
            self._write(write)
        except psycopg2.errors.UniqueViolation:
            # An earlier try has committed the same state, but its answer was lost.
            self._write(lambda cursor: cursor.execute(servers.VISITS, log()))

    def write_evaluations(self, evaluations: Sequence[Mapping[str, Any]]) -> None:
        self._write(lambda cursor: cursor.execute(servers.EVALUATIONS, [json.dumps(evaluations)]))

    def log_in(self) -> None:
        """Log in at this process's own server; raise an error if the server refuses."""
        self._connection(self._server(None))

    def refused(self, where: Sequence[Where]) -> list[int]:
        """Return the positions in `where` of the servers that refuse this process's login."""
        return [number for number, place in enumerate(where) if not self._lets_in(place)]

    def _lets_in(self, where: Where) -> bool:
        try:
            self._connection(self._server(where))
        except CerebroError:
            return False
        return True

    def _copied(self, where: Where, statement: str) -> memoryview | None:
        server = self._server(where)
        if time.monotonic() - self._logins.refused.get(server, -math.inf) < _REFUSED_SECONDS:
            return None
        while True:
            known, received = server in self._logins.open, io.BytesIO()
            try:
                with self._connection(server).cursor() as cursor:
                    cursor.copy_expert(statement, received, _COPY_BYTES)
                return received.getbuffer()
            except (psycopg2.Error, CerebroError):
                self._logins.close(server)
                if not known:
                    # The data is then read through the coordinator, which reports what is wrong.
                    self._logins.refused[server] = time.monotonic()
                    return None

    def _write(self, work: CursorWork) -> None:
        """Call `work` with a cursor on the process's own server; call it again if the connection was lost."""
        server = self._server(None)
        try:
            self._patiently(server, work)
        except psycopg2.errors.UniqueViolation:
            raise
        except psycopg2.Error as error:
            found = self._logins.open.get(server)
            if found is not None and not found.closed:
                raise _unwritten(error) from None
            self._logins.close(server)
            try:
                self._patiently(server, work)
            except psycopg2.Error as error:
                raise _unwritten(error) from None

    def _patiently(self, server: servers.Login, work: CursorWork) -> None:
        for _ in range(_LOCK_WAITS):
            try:
                return self._once(server, work)
            except psycopg2.errors.LockNotAvailable:
                self._tick()
        return self._once(server, work)

    def _once(self, server: servers.Login, work: CursorWork) -> None:
        with self._connection(server).cursor() as cursor:
            try:
                work(cursor)
            except BaseException:
                with suppress(psycopg2.Error):
                    cursor.execute(servers.UNDO)
                raise

    def _server(self, where: Where) -> servers.Login:
        if self._logins.own is None:
            self._logins.own = servers.own_server(self._db)
        own = self._logins.own
        return own if where is None else servers.other_server(own, *where)

    def _connection(self, server: servers.Login) -> Any:
        if server not in self._logins.open:
            try:
                opened = psycopg2.connect(**vars(server))
            except psycopg2.Error as error:
                raise _refusal(error) from None
            opened.autocommit = True
            with opened.cursor() as cursor:
                cursor.execute(servers.PREPARE)
            self._logins.open[server] = opened
        return self._logins.open[server]


def _ended(visit: Mapping[str, Any], write_seconds: float, ended_at: float) -> Mapping[str, Any]:
    seconds = visit["write_seconds"] + write_seconds
    # A clock may be set back meanwhile.
    return {**visit, "write_seconds": seconds, "ended_at": max(ended_at, visit["started_at"])}


def _unwritten(error: psycopg2.Error) -> CerebroError:
    known = from_driver(error, ADMIN_SHUTDOWN)
    message = f"a segment's process could not write what it has made: {known.message}"
    return CerebroError(message, detail=known.detail, hint=known.hint, sqlstate=known.sqlstate)


def _refusal(error: psycopg2.Error) -> CerebroError:
    if not _was_answered(error):
        return CerebroError(
            "a segment's server does not answer its own process",
            detail=" ".join(str(error).split()),
            hint="It is down or restarting: gp_segment_configuration and its log show which."
            " When it answers again, cerebro.resume continues the run.",
            sqlstate=SEGMENT_GONE,
        )
    return CerebroError(
        "a segment's server refuses the login that a run needs",
        detail=f"The login over its local socket was answered: {' '.join(str(error).split())}",
        hint="Let the owner of the extension log in over the local socket of each segment: a line"
        " local for that role in the segment's pg_hba.conf, with the method peer.",
        sqlstate=CONNECTION_FAILURE,
    )


def _was_answered(error: psycopg2.Error) -> bool:
    """Return whether the server that refused a login is up, and neither starting nor stopping."""
    said = str(error)
    return "FATAL" in said and not any(word in said for word in ("starting up", "shutting down", "recovery"))


class _Stream:
    """A readable file object for COPY; it reads the given pieces of bytes one after the other."""

    def __init__(self, pieces: Iterator[servers.Part]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = memoryview(piece)
        found, self._left = self._left[:size], self._left[size:]
        return bytes(found)
