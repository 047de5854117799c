"""Greenplum: hold cancels back while segments are told that a subtransaction begins or ends.

PL/Python catches what a statement raises, but not what the server raises while it begins the subtransaction
around it or rolls it back. There the server waits for segments, so a cancel or a timeout that comes then
jumps over Python's frames, and Python's next call in that session may crash the server. One that comes while
the subtransaction is released makes its rollback fail, to the same end. So cancels are held back, by the
server's own count, until the subtransaction has begun, and again when the statement's work is done or undone.
The callbacks that the server offers to extensions tell when that is. In between, cancels work as ever.
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
# The events for which the server calls them, by its own numbers.
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
    """A statement of ours: its subtransaction, and the outermost query under way in it."""

    only_parsed: bool
    waits: bool
    subtransaction: int = 0
    query: int | None = None


def _find_count() -> ctypes.c_int | None:
    """Return the server's count of holds on cancels, or None outside Greenplum's coordinator.

    Nor if the server lacks what else this takes: there no call works but one that says so.
    """
    if before_statement.MISSING or not before_statement.is_coordinator():
        return None
    return ctypes.c_int.in_dll(_SERVER, "QueryCancelHoldoffCount")


_count = _find_count()
# The innermost is the last.
_statements: list[_Statement] = []


def held(begins_or_ends: Callable[P, T], *, only_parses: bool = False, waits: bool = True) -> Callable[P, T]:
    """Return the function with cancels held back where they would tear Python down.

    A function that neither takes long nor waits for others is not interrupted at all.
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
    """Return the statement of ours that the server is working on, once it has begun."""
    return _statements[-1] if _statements and _statements[-1].subtransaction else None


def _on_subtransaction(event: int, own: int, _parent: int, _: int | None) -> None:
    known = _under_way()
    if event == _SUBTRANSACTION_BEGAN and _statements and known is None:
        _statements[-1].subtransaction = own
        _hold(not _statements[-1].waits)
    elif event == _SUBTRANSACTION_UNDONE and known is not None and own == known.subtransaction:
        _hold(True)


def _on_query(event: int, query: int | None) -> None:
    """Let cancels work while a query runs; queries inside another are ignored.

    While a plan is made, there may be several queries one after the other.
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
    """Hold cancels back after a statement that is only parsed, since it waits for no more locks."""
    known = _under_way()
    if known is not None and known.only_parsed:
        _hold(True)


def _on_object(what: int, _kind: int, _object: int, _column: int, _: int | None) -> None:
    """Hold cancels back when DDL changes an object, since it has then got what it waited for."""
    known = _under_way()
    if what in _OBJECT_CHANGES and known is not None and known.query is None:
        _hold(True)


# The server knows them by their addresses alone.
_called: list[Any] = [_OnSubtransaction(_on_subtransaction)]


def _hook(name: str, function: Any) -> None:
    """Install a hook, unless another extension has one: its errors would jump over our frames."""
    there = ctypes.c_void_p.in_dll(_SERVER, name)
    if not there.value:
        _called.append(function)
        there.value = ctypes.cast(function, ctypes.c_void_p).value


if _count is not None:
    _SERVER.RegisterSubXactCallback(_called[0], None)
    _hook("query_info_collect_hook", _OnQuery(_on_query))
    _hook("post_parse_analyze_hook", _OnParsed(_on_parsed))
    _hook("object_access_hook", _OnObject(_on_object))
