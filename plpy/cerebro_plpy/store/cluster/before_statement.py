"""Greenplum: find out, without a statement, whether the server can begin a statement at this moment.

A statement of PL/Python begins a subtransaction, which the server announces to all segments. If it cannot,
its error jumps over Python's frames, and Python's next call in that session may crash the server.

The first of the extension's functions that a session calls runs this file by its path, before the package can
be imported (tools/build_sql.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
from collections.abc import Callable

_SERVER = ctypes.PyDLL(None)
DISPATCH, EXECUTE = 2, 3
# The file in which the server lists its segments, for moments when it cannot read the table of segments.
_SEGMENTS = "gpsegconfig_dump"
_SECONDS = 3.0

INSIDE_A_QUERY = {
    "message": "a query that reads tables cannot call this function",
    "detail": "Greenplum's segments work on one statement at a time, and this function needs its own.",
    "hint": "Give it values that are there when it is called, such as (SELECT max(run_id) FROM cerebro.runs)."
    " For several, read them into an array first; docs/greenplum.md shows this, and how to keep what a"
    " function gives in a table.",
    "sqlstate": "0A000",
}
PREDICTS = {
    "message": "cerebro.predict, predict_query, predict_related and explain_predict do not work on Greenplum",
    "detail": "A function may not read a model's table there while a query is at work on other rows.",
    "hint": "Use cerebro.madlib_predict, which predicts on all segments at once.",
    "sqlstate": "0A000",
}


# The server's variables and functions that the checks need, and those by which uncancelled.py works.
NEEDED = (
    "cdbcomponent_activeQEsExist",
    "cdbcomponent_qesExist",
    "currentGxactWriterGangLost",
    "QueryCancelHoldoffCount",
    "RegisterSubXactCallback",
    "query_info_collect_hook",
    "post_parse_analyze_hook",
    "object_access_hook",
)
DIAGNOSE = "diagnose"


def _find_role() -> ctypes.c_int | None:
    """Return the server's variable for the role of this process in a Greenplum cluster; None on
    PostgreSQL."""
    with contextlib.suppress(ValueError):
        return ctypes.c_int.in_dll(_SERVER, "Gp_role")
    return None


def _find_question(name: str) -> Callable[[], bool]:
    """Return the server's C function of this name, which takes nothing and answers yes or no; if the server
    lacks it, return a function that always returns False."""
    found = getattr(_SERVER, name, bool)
    if found is not bool:
        found.restype = ctypes.c_bool
    return found


ROLE = _find_role()
MISSING = tuple(name for name in NEEDED if ROLE is not None and not hasattr(_SERVER, name))
# Whether an unfinished query has this session's processes on segments at work.
is_inside_a_query = _find_question("cdbcomponent_activeQEsExist")
has_lost_process = _find_question("currentGxactWriterGangLost")
_has_processes = _find_question("cdbcomponent_qesExist")


def is_coordinator() -> bool:
    return ROLE is not None and ROLE.value == DISPATCH


def unreachable() -> dict[str, str] | None:
    """Return the error for the first segment that does not answer, or None if all do.

    Segments are tried only while this session has no processes on them, because its next statement will start
    some.
    """
    if not is_coordinator() or _has_processes():
        return None
    for content, address, port in _primaries():
        try:
            socket.create_connection((address, port), _SECONDS).close()
        except OSError as error:
            return {
                "message": f"segment {content} of the cluster does not answer",
                "detail": f"Its server is at {address}, port {port}: {error}.",
                "hint": "gp_segment_configuration and the segment's log say more. Try again when all segments"
                " answer. A run goes on with cerebro.resume.",
                "sqlstate": "58M01",
            }
    return None


def _read_segments() -> list[str]:
    with contextlib.suppress(OSError), open(_SEGMENTS) as lines:
        return lines.read().splitlines()
    return []


def _primary(line: str) -> tuple[int, str, int] | None:
    """Return the content number, address and port from a line about a primary segment; None for other nodes.

    Raise ValueError if the line does not have the form that Greenplum 7 writes.
    """
    _dbid, content, role, _preferred, _mode, _status, port, _host, address = line.split()
    is_primary = role == "p" and int(content) >= 0
    return (int(content), address, int(port)) if is_primary else None


def _primaries() -> list[tuple[int, str, int]]:
    found = []
    for line in _read_segments():
        with contextlib.suppress(ValueError):
            primary = _primary(line)
            found += [] if primary is None else [primary]
    return found


def unread_line() -> str | None:
    """Return the first line of the server's list of segments that cannot be parsed, or None."""
    for line in _read_segments():
        try:
            _primary(line)
        except ValueError:
            return line
    return None


def lacks() -> list[str]:
    """Return what the checks of this module need and this build of the server lacks: names of its variables
    and functions, and a list of segments that can be parsed."""
    line = unread_line()
    unread = [] if line is None else [f"{_SEGMENTS} in the form of Greenplum 7 (it has: {line})"]
    return [*MISSING, *unread]


def unknown_server() -> dict[str, str] | None:
    """Return the error for a build of the server that lacks what the checks of this module need, or None."""
    found = lacks() if is_coordinator() else []
    if not found:
        return None
    return {
        "message": "this build of the server is not one that cerebro knows",
        "detail": f"It lacks {', '.join(found)}. Without that, a call inside a query, a cancel, or a segment"
        " that is down could end the coordinator.",
        "hint": "SELECT * FROM cerebro.diagnose() works, in a statement of its own. docs/greenplum.md names"
        " the builds that are expected to work.",
        "sqlstate": "0A000",
    }


def why_not(function: str = "") -> dict[str, str] | None:
    """Return the error that `function` must raise before it runs its first statement, or None if it may run
    it."""
    if function.lstrip("_").startswith("predict") and ROLE is not None:
        return PREDICTS
    if function != DIAGNOSE and (unknown := unknown_server()) is not None:
        return unknown
    return INSIDE_A_QUERY if is_inside_a_query() else unreachable()
