"""Loopback connections to the server: opens them, sends commands, waits for answers, and notices losses."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.extensions

from cerebro_plpy.commands import Drive, Sent, StartEngine
from cerebro_plpy.errors import (
    ADMIN_SHUTDOWN,
    CONNECTION_FAILURE,
    INTERNAL,
    SEGMENT_GONE,
    CerebroError,
    from_driver,
)
from cerebro_plpy.store import citus, session, sockets

# The server's first process, while it lives.
_PARENT = os.getppid()
# How long to wait for answers before the next look whether the caller has cancelled.
WAIT_SECONDS = 0.05
CONTROL = -1
# On Greenplum, errors after which the session is still there, but has lost its process on a segment.
SEGMENT_LOST = (SEGMENT_GONE, "57P01", "57P02", "57P03")
# How soon a connection to another host notices that the host is gone: after half a minute.
_ALIVE = {
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_SESSION_SETTINGS_14 = {"client_connection_check_interval": "1s"}


class LoopbackSession:
    """A connection to a session in asynchronous mode, with at most one command to be answered."""

    def __init__(self, target: session.LoginTarget, settings: Mapping[str, str]) -> None:
        self.connection = psycopg2.connect(_dsn(target, settings), async_=1)
        self._descriptor = self.connection.fileno()
        sockets.leave_out(self._descriptor)
        self._cursor: Any = None
        self.look_seconds = 0
        self.busy = False
        # Whether the current command is the start of its engine, for which nobody needs to wait.
        self.starts = False
        self.opened = False

    def ready(self) -> bool:
        """Advance the connection without blocking; return whether the command, or the login, has ended."""
        return self.connection.poll() == psycopg2.extensions.POLL_OK

    def poll(self) -> int:
        """Advance the connection without blocking; return the result of psycopg2's `poll()`.

        Once the login is done, raise errors of the server as CerebroError.
        """
        try:
            return self.connection.poll()
        except psycopg2.Error as error:
            if not self.opened:
                raise
            self.busy = False
            raise error_of(self, error) from None

    def begin(self, sent: Sent) -> None:
        bounded = replace(sent, look_seconds=self.look_seconds)
        self.starts = isinstance(sent.command, StartEngine)
        self._send(session.COMMAND, sent.way.name, bounded.as_json())

    def _send(self, statement: str, *values: str) -> None:
        try:
            self._cursor = self.connection.cursor()
            self._cursor.execute(statement, values)
        except psycopg2.Error as error:
            raise error_of(self, error) from None
        self.busy = True

    def result(self) -> Mapping[str, Any]:
        self.busy = False
        return json.loads(self._cursor.fetchone()[0])

    def alive(self) -> bool:
        """Return whether the connection is idle and its session has not ended."""
        if self.connection.closed or self.busy:
            return False
        return not select.select([self.connection], [], [], 0)[0]

    def stop(self) -> None:
        try:
            if self.busy:
                self.connection.cancel()
        except psycopg2.Error:
            pass
        finally:
            self.close()

    def close(self) -> None:
        self.connection.close()
        sockets.count_in(self._descriptor)


def settings_of(target: session.LoginTarget, idle_minutes: int, slot: int) -> Mapping[str, str]:
    settings = session.SETTINGS | ({} if slot == CONTROL else session.VISIT_SETTINGS)
    settings |= target.settings
    if target.server_version >= 140000:
        settings |= _SESSION_SETTINGS_14 | {"idle_session_timeout": f"{idle_minutes}min"}
    return settings


def _dsn(target: session.LoginTarget, settings: Mapping[str, str]) -> str:
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    own = {"options": options, "application_name": session.IDLE, "connect_timeout": "10"}
    if target.connection:
        return psycopg2.extensions.make_dsn(target.connection, **own)
    place = {"host": target.host, "port": target.port, "dbname": target.dbname, "user": target.user}
    set_by_hand = psycopg2.extensions.parse_dsn(target.conninfo)
    return psycopg2.extensions.make_dsn("", **{**_ALIVE, **set_by_hand, **place, **own})


class SessionLost(CerebroError):
    """Raised if a session has ended, so that it is not known whether its last command was committed."""


def error_of(of: LoopbackSession, error: psycopg2.Error) -> CerebroError:
    """Convert an error of psycopg2; return a `SessionLost` if the session has ended, not only its command."""
    known = citus.judge(from_driver(error, INTERNAL))
    # FATAL may come before the stream ends.
    is_fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC") or error.pgcode is None
    if not (is_fatal or known.sqlstate in SEGMENT_LOST or of.connection.closed):
        return known
    return SessionLost(**known.arguments)


def leave_running(
    target: session.LoginTarget,
    command: Drive,
    look_seconds: int,
    taken_up: Callable[[], bool],
    tick: Callable[[], None],
) -> None:
    """Open a session that drives a run, wait until `taken_up` returns true, and close the connection.

    The session goes on without it. Raise an error if the session fails before.
    """
    settings = settings_of(target, 1, CONTROL)
    # The session must not end when the connection is closed.
    alone = {"client_connection_check_interval": "0"} if target.server_version >= 140000 else {}
    there = LoopbackSession(target, {**settings, **alone})
    there.look_seconds = look_seconds
    try:
        wait_for([there], tick)
        check_superuser(there)
        there.begin(Sent(command))
        while not taken_up():
            if there.poll() == psycopg2.extensions.POLL_OK:
                there.result()
                return
            select.select([there.connection], [], [], WAIT_SECONDS)
            tick()
    except psycopg2.Error as error:
        raise refused(target, error) from None
    except BaseException:
        # The caller was cancelled, and believes that nothing runs.
        if there.busy:
            with suppress(psycopg2.Error):
                there.connection.cancel()
        raise
    finally:
        there.close()


def check_superuser(opened: LoopbackSession) -> None:
    """Raise an error if a session's role is not a superuser, which alone can act as a run's caller."""
    if opened.connection.info.parameter_status("is_superuser") != "on":
        raise psycopg2.OperationalError("the role that logs in is not a superuser")
    opened.opened = True


def wait_for(sessions: Sequence[LoopbackSession], tick: Callable[[], None]) -> None:
    """Wait until all these sessions have ended their command or login, calling `tick` meanwhile."""
    waiting = list(sessions)
    while waiting:
        states = {s: s.poll() for s in waiting}
        waiting = [s for s, state in states.items() if state != psycopg2.extensions.POLL_OK]
        if waiting:
            writers = [s.connection for s in waiting if states[s] == psycopg2.extensions.POLL_WRITE]
            select.select([s.connection for s in waiting], writers, [], WAIT_SECONDS)
            tick()


def check_server() -> None:
    """Raise an error if the server has ended. A process that only waits does not learn of it otherwise."""
    if os.getppid() != _PARENT:
        raise CerebroError("the server has ended", sqlstate=ADMIN_SHUTDOWN)


def refused(target: session.LoginTarget, error: psycopg2.Error) -> CerebroError:
    """Return the error for a login that failed. Raise an error instead if the server has ended."""
    check_server()
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
    return CerebroError(
        "this server refuses the segment sessions that a run needs",
        detail=f"The login over the local socket was answered: {_without_secrets(target, reason)}",
        hint="Let the owner of the extension log in over the local socket (pg_hba.conf, method peer), or"
        " have an administrator store a connection string: INSERT INTO"
        " cerebro.settings VALUES ('connection', '…').",
        sqlstate=CONNECTION_FAILURE,
    )


def _without_secrets(target: session.LoginTarget, reason: str) -> str:
    """Return a reason for a failed login that shows nothing of a stored connection string."""
    return "the stored connection string does not work" if target.connection else reason
