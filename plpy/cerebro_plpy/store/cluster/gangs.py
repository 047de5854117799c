"""Greenplum: check without a statement whether a statement can be run at this moment.

Each statement of PL/Python begins a subtransaction, which the server announces to the segments. If it cannot,
for example inside a query for which the segments are working, its error jumps over Python's frames, and
Python's next call in that session may crash the server. So the server's own variables are read before a
statement is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.errors import NOT_SUPPORTED, SEGMENT_GONE, SEGMENT_GONE_HINT, CerebroError
from cerebro_plpy.store import sockets
from cerebro_plpy.store.cluster import before_statement
from cerebro_plpy.store.dialect import is_greenplum

# Without an aggregate, which would have the function called on the coordinator.
_TELL_ALL = "SELECT cerebro._work($1) FROM gp_dist_random('pg_catalog.gp_id')"


IS_CLUSTER = before_statement.ROLE is not None


def refuse_inside_queries() -> None:
    """Raise an error in a segment's process, or while segments work on an unfinished query of this
    session."""
    role = before_statement.ROLE
    if role is not None and (role.value == before_statement.EXECUTE or before_statement.is_inside_a_query()):
        raise _refusal(before_statement.INSIDE_A_QUERY)


def refuse_unknown_server() -> None:
    """Raise an error if this build of the server lacks what the checks in `before_statement.py` need."""
    said = before_statement.unknown_server()
    if said is not None:
        raise _refusal(said)


def refuse_predicting() -> None:
    """Raise the error that Greenplum cannot predict inside a query; it says what to use instead."""
    raise _refusal(before_statement.PREDICTS)


def _refusal(said: Mapping[str, str]) -> CerebroError:
    return CerebroError(said["message"], detail=said["detail"], hint=said["hint"], sqlstate=said["sqlstate"])


def learn_segments(db: Database) -> None:
    """Remember the segments' ports, by which `refuse_without_segments` recognizes this session's connections
    to them; raise an error if the server does not say which role this process has."""
    if not IS_CLUSTER and is_greenplum(db):
        raise CerebroError(
            "this build of the server does not tell a session what it is in its cluster",
            detail="It has the setting gp_role, but not the variable Gp_role.",
            hint="docs/greenplum.md names the builds that are expected to work.",
            sqlstate=NOT_SUPPORTED,
        )
    if IS_CLUSTER and not sockets.knows_ports():
        rows = db.query("SELECT DISTINCT port FROM pg_catalog.gp_segment_configuration WHERE content >= 0")
        sockets.learn_ports(row["port"] for row in rows)


def refuse_without_segments() -> None:
    """Raise an error if a segment is down, or if this session has lost a process on a segment.

    Otherwise the server would notice this only during the next statement, and its error could end in a crash.
    """
    if not before_statement.is_coordinator():
        return
    said = before_statement.unreachable()
    if said is not None:
        raise _refusal(said)
    if not sockets.knows_ports():
        return
    if before_statement.has_lost_process() or sockets.has_ended_connection():
        raise CerebroError(
            "this session has lost a process of its own on a segment",
            detail="The segment's server ended it, or starts again.",
            hint=SEGMENT_GONE_HINT,
            sqlstate=SEGMENT_GONE,
        )


@contextmanager
def bound(db: Database, seconds: int) -> Iterator[None]:
    """During the block, limit the seconds that a user's code may take in this session's processes on
    segments; afterwards, have these processes release the advisory locks that the code took."""
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
