"""Greenplum: whether a statement can be run at this moment, found out without one.

Each statement of PL/Python's begins a subtransaction, of which the segments are told. Where the server cannot
tell them, as inside a query that has them at work, its error jumps over Python's frames, and Python's next
call in that session may crash the server. So the server's own variables are asked before a statement is run.
"""

from __future__ import annotations

import ctypes

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError

_SERVER = ctypes.PyDLL(None)
_EXECUTE = 3


def _find_role() -> ctypes.c_int | None:
    """What this process is to its cluster; only Greenplum has that."""
    try:
        return ctypes.c_int.in_dll(_SERVER, "Gp_role")
    except ValueError:
        return None


def _find_question(name: str) -> ctypes._NamedFuncPointer | None:
    found = getattr(_SERVER, name, None)
    if found is not None:
        found.restype = ctypes.c_bool
    return found


_ROLE = _find_role()
IS_CLUSTER = _ROLE is not None
_HAS_BUSY = _find_question("cdbcomponent_activeQEsExist")


def refuse_inside_queries() -> None:
    """Raise an error in a segment's process, and while a query that is not over yet has segments at work."""
    if _ROLE is not None and (_ROLE.value == _EXECUTE or (_HAS_BUSY is not None and _HAS_BUSY())):
        raise CerebroError(
            "a query that reads tables cannot call this function",
            detail="Greenplum's segments work on one statement at a time, and this function needs its own.",
            hint="Give it values that are there when it is called: SELECT cerebro.resume((SELECT max(run_id)"
            " FROM cerebro.runs)). For several, read them into an array first; docs/greenplum.md shows this,"
            " and how to keep what a function gives in a table.",
            sqlstate=NOT_SUPPORTED,
        )
