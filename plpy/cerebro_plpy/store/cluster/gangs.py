"""Greenplum: check without a statement whether a statement can be run at this moment.

Each statement of PL/Python begins a subtransaction, of which the segments are told. If the server cannot tell
them, as inside a query that has them at work, its error jumps over Python's frames, and Python's next call in
that session may crash the server. So the server's own variables are read before a statement is run.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import stat
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from cerebro_plpy import memory
from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.errors import NOT_SUPPORTED, SEGMENT_GONE, SEGMENT_GONE_HINT, CerebroError
from cerebro_plpy.store.cluster import before_statement
from cerebro_plpy.store.dialect import is_greenplum

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR
# An aggregate would have the function called here.
_TELL_ALL = "SELECT cerebro._work($1) FROM gp_dist_random('pg_catalog.gp_id')"


IS_CLUSTER = before_statement.ROLE is not None


class _Ports(set[int]):
    """The ports of the segments' servers, mirrors included; a session reads them once."""


def refuse_inside_queries() -> None:
    """Raise an error in a segment's process, or while an unfinished query has segments at work."""
    role = before_statement.ROLE
    if role is not None and (role.value == before_statement.EXECUTE or before_statement.is_inside_a_query()):
        raise _refusal(before_statement.INSIDE_A_QUERY)


def refuse_unknown_server() -> None:
    """Raise an error if this build of the server lacks what a session is checked by."""
    said = before_statement.unknown_server()
    if said is not None:
        raise _refusal(said)


def refuse_predicting() -> None:
    """Raise the error that says what to use instead of a prediction inside a query."""
    raise _refusal(before_statement.PREDICTS)


def _refusal(said: Mapping[str, str]) -> CerebroError:
    return CerebroError(said["message"], detail=said["detail"], hint=said["hint"], sqlstate=said["sqlstate"])


def learn_segments(db: Database) -> None:
    """Let `refuse_without_segments` recognize the session's connections to segments."""
    ports = memory.get_instance(_Ports)
    if not IS_CLUSTER and is_greenplum(db):
        raise CerebroError(
            "this build of the server does not tell a session what it is in its cluster",
            detail="It has the setting gp_role, but not the variable Gp_role.",
            hint="docs/greenplum.md names the builds that are expected to work.",
            sqlstate=NOT_SUPPORTED,
        )
    if IS_CLUSTER and not ports:
        rows = db.query("SELECT DISTINCT port FROM pg_catalog.gp_segment_configuration WHERE content >= 0")
        ports.update(row["port"] for row in rows)


def refuse_without_segments() -> None:
    """Raise an error if a segment is down, or if this session has lost a process on one.

    The server would notice that with its next statement, which would be ours.
    """
    if not before_statement.is_coordinator():
        return
    said = before_statement.unreachable()
    if said is not None:
        raise _refusal(said)
    if not memory.get_instance(_Ports):
        return
    if before_statement.has_lost_process() or _has_ended_connection():
        raise CerebroError(
            "this session has lost a process of its own on a segment",
            detail="The segment's server ended it, or starts again.",
            hint=SEGMENT_GONE_HINT,
            sqlstate=SEGMENT_GONE,
        )


@contextmanager
def bound(db: Database, seconds: int) -> Iterator[None]:
    """Limit the time of a user's code in this session's processes on segments, and let it leave no locks."""
    if not before_statement.is_coordinator():
        yield
        return
    _tell_bound(db, seconds)
    try:
        yield
    except BaseException:
        # A process that is gone has no locks; what is wrong is known already.
        with suppress(CerebroError):
            _tell_bound(db, None)
        raise
    _tell_bound(db, None)


@as_owner
def _tell_bound(db: Database, seconds: int | None) -> None:
    told = json.dumps({"bound": seconds})
    db.query(_TELL_ALL, ["text"], [told])


def _has_ended_connection() -> bool:
    """Return whether a connection that the server believes in is gone.

    The server keeps some that it has given up: it has read their last words, and has opened others since.
    """
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    # Before each statement: what is not the rule may take its time.
    ended = _ended_among(descriptors)
    if not ended:
        return False
    servers: dict[int, tuple[str, int]] = {}
    for descriptor in descriptors:
        with suppress(OSError):
            server = _find_segment(descriptor)
            if server is not None:
                servers[descriptor] = server
    # Segments on several hosts have the same ports.
    alive = {server for descriptor, server in servers.items() if descriptor not in ended}
    return any(servers[one] not in alive or _has_unread(one) for one in ended & servers.keys())


def _find_segment(descriptor: int) -> tuple[str, int] | None:
    """Return the address and port of the segment's server that a connection leads to, or None.

    Raise OSError if it is no connection.
    """
    there = socket.socket(fileno=descriptor)
    try:
        peer = there.getpeername()
    finally:
        # It is the server's own.
        there.detach()
    return peer[:2] if isinstance(peer, tuple) and peer[1] in memory.get_instance(_Ports) else None


def _ended_among(descriptors: Sequence[int]) -> set[int]:
    asked = select.poll()
    for descriptor in descriptors:
        asked.register(descriptor, select.POLLRDHUP)
    ended = (descriptor for descriptor, event in asked.poll(0) if event & _ENDED)
    # The server has a pipe that nobody reads.
    return {descriptor for descriptor in ended if stat.S_ISSOCK(os.fstat(descriptor).st_mode)}


def _has_unread(descriptor: int) -> bool:
    """Return whether there is something to read, such as the message that the process was told to end."""
    return any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
