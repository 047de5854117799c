"""Greenplum: hold cancels back while the server tells segments that a subtransaction begins or ends.

PL/Python catches an error that a statement raises. It does not catch an error that the server raises while it
begins the statement's subtransaction or rolls it back. During both the server waits for segments, and a
cancel or timeout that arrives then jumps over Python's frames: Python's next call in that session may crash
the server. A cancel that arrives while the subtransaction is released makes the rollback fail, with the same
result. So this module holds cancels back, through the server's own counter, until the subtransaction has
begun, and again once the statement's work is done or undone. The server's callbacks for extensions tell when
that is. In between, cancels work as usual.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from cerebro_plpy.store.cluster import before_statement

P = ParamSpec("P")
T = TypeVar("T")

_SERVER = ctypes.PyDLL(None)
# The server's numbers of the events for which it calls the functions below.
_SUBTRANSACTION_BEGAN, _SUBTRANSACTION_UNDONE = 0, 2
_QUERY_STARTS, _QUERY_DONE, _INNER_QUERY_DONE = 201, 202, 300
_OBJECT_CHANGES = (0, 1, 2)
_OnSubtransaction = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
_OnQuery = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
_OnParsed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_OnObject = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p
)


@dataclass
class _Statement:
    """A statement that Python runs: its subtransaction, and the outermost query that is running in it."""

    only_parsed: bool
    waits: bool
    subtransaction: int = 0
    query: int | None = None


def _find_count() -> ctypes.c_int | None:
    """Return the server's counter of holds on cancels, or None outside Greenplum's coordinator.

    Return None also if the server lacks something that this module or the checks of a session need. Then no
    call works except the one that reports this.
    """
    if before_statement.MISSING or not before_statement.is_coordinator():
        return None
    return ctypes.c_int.in_dll(_SERVER, "QueryCancelHoldoffCount")


_count = _find_count()
# The statements that Python is running, the innermost last.
_statements: list[_Statement] = []


def held(begins_or_ends: Callable[P, T], *, only_parses: bool = False, waits: bool = True) -> Callable[P, T]:
    """Return a function that calls `begins_or_ends`, with cancels held back while they would crash Python.

    `begins_or_ends` is a function of plpy that begins or ends a subtransaction, as each statement does. With
    `only_parses`, it only prepares a statement. Without `waits`, it neither takes long nor waits for others,
    so cancels are held back for the whole call.
    """
    if _count is None:
        return begins_or_ends

    def call(*arguments: P.args, **named: P.kwargs) -> T:
        _statements.append(_Statement(only_parses, waits))
        _hold(True)
        try:
            return begins_or_ends(*arguments, **named)
        finally:
            _statements.pop()
            _hold(False)

    return call


def _hold(back: bool) -> None:
    if _count is not None:
        _count.value = back


def _under_way() -> _Statement | None:
    """Return the innermost statement that Python is running, if its subtransaction has begun, or None."""
    return _statements[-1] if _statements and _statements[-1].subtransaction else None


def _on_subtransaction(event: int, own: int, _parent: int, _: int | None) -> None:
    known = _under_way()
    if event == _SUBTRANSACTION_BEGAN and _statements and known is None:
        _statements[-1].subtransaction = own
        _hold(not _statements[-1].waits)
    elif event == _SUBTRANSACTION_UNDONE and known is not None and own == known.subtransaction:
        _hold(True)


def _on_query(event: int, query: int | None) -> None:
    """Let cancels work while a statement's outermost query runs; queries inside that query are ignored.

    A statement may have several outermost queries one after the other, since the server may run some while
    it makes the plan.
    """
    known = _under_way()
    if known is None:
        return
    if event == _QUERY_STARTS and known.query is None:
        known.query = query
        _hold(False)
    elif event in (_QUERY_DONE, _INNER_QUERY_DONE) and query == known.query:
        known.query = None
        _hold(True)


def _on_parsed(_state: int | None, _query: int | None) -> None:
    """Hold cancels back again once the server has parsed a statement that is only prepared: by then the
    server has all the locks that it needs for this."""
    known = _under_way()
    if known is not None and known.only_parsed:
        _hold(True)


def _on_object(what: int, _kind: int, _object: int, _column: int, _: int | None) -> None:
    """Hold cancels back again once DDL changes an object: the statement then has the locks that it waited
    for."""
    known = _under_way()
    if what in _OBJECT_CHANGES and known is not None and known.query is None:
        _hold(True)


# Keeps these functions alive, since the server knows only their addresses.
_called: list[Any] = [_OnSubtransaction(_on_subtransaction)]


def _hook(name: str, function: Any) -> None:
    """Set one of the server's hooks to a function, unless another extension has set it: errors of that
    extension's function would jump over our frames."""
    there = ctypes.c_void_p.in_dll(_SERVER, name)
    if not there.value:
        _called.append(function)
        there.value = ctypes.cast(function, ctypes.c_void_p).value


if _count is not None:
    _SERVER.RegisterSubXactCallback(_called[0], None)
    _hook("query_info_collect_hook", _OnQuery(_on_query))
    _hook("post_parse_analyze_hook", _OnParsed(_on_parsed))
    _hook("object_access_hook", _OnObject(_on_object))
