"""Wrappers of the functions that SQL calls.

They set up each call, and raise errors of the package as errors of the server, with their SQLSTATE, DETAIL
and HINT.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import plpy  # provided by the server, inside a backend only

from cerebro_plpy import memory
from cerebro_plpy.backend import Session, backend
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, READ_ONLY_TRANSACTION, CerebroError, printable
from cerebro_plpy.madlib import registered
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.store.cluster import gangs
from cerebro_plpy.store.cluster.before_statement import DIAGNOSE

T = TypeVar("T")
P = ParamSpec("P")


def report(error: CerebroError) -> Any:
    """Return an exception that PL/Python reports with the fields of `error`, as "cerebro: message"."""
    report = type("cerebro", (plpy.Error,), {"__module__": "__main__"})(printable(error.message))
    report.sqlstate = error.sqlstate
    report.detail = error.detail and printable(error.detail)
    report.hint = error.hint and printable(error.hint)
    return report


def carry_out(work: Callable[[], T], known: Sequence[registered.Function] = ()) -> T:
    """Do the work of a call, with `known` as the registered functions in scope; return its result.

    Errors are converted by the calling wrapper, not here, because each frame that the converted error passes
    adds a line to the CONTEXT that a user reads.
    """
    interrupts.let_cancels_wait()
    memory.get_instance(memory.Pause).take = _look_for_cancel
    with registered.scope(known):
        return work()


def _look_for_cancel() -> None:
    interrupts.tick(Session())


def internal(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that its errors become errors of the server.

    It is for functions that only the extension's own SQL calls, or that run no statements.
    """

    @wraps(function)
    def begun(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return carry_out(partial(function, *arguments, **named))
        except CerebroError as error:
            raise report(error) from None

    return begun


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function that users call and that runs statements.

    The function runs with the extension's search_path, and its errors become errors of the server. A call
    raises an error if it may not run here, for example inside a query on Greenplum.
    """

    @wraps(function)
    def begun(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            work = partial(function, *arguments, **named)
            return carry_out(partial(_on_own_path, work, diagnoses=arguments[:1] == (DIAGNOSE,)))
        except CerebroError as error:
            raise report(error) from None

    return begun


def _on_own_path(work: Callable[[], T], diagnoses: bool) -> T:
    """Do work with the extension's search_path, keeping the caller's in `Backend`; return its result.

    A call that `diagnoses` the server is not refused on an unknown build of the server: it reports this.
    """
    called_at = time.monotonic()
    if not diagnoses:
        gangs.refuse_unknown_server()
    _check_place()
    db, own = Session(), backend()
    with session.own_names(db) as theirs:
        before = own.search_path, own.called_at
        own.search_path, own.called_at = theirs.path, called_at
        try:
            gangs.learn_segments(db)
            return work()
        finally:
            own.search_path, own.called_at = before


def _check_place() -> None:
    if backend().looking:
        raise CerebroError(
            "this function cannot be called by code behind a table that a run reads",
            hint="Policies, views and the functions that they call may only read.",
            sqlstate=READ_ONLY_TRANSACTION,
        )
    # An error of Greenplum that skipped Python's frames may have left this set.
    backend().owner = False
    gangs.refuse_inside_queries()


def run_pending() -> None:
    """Run the last pending work; this is the body of the SQL functions that exist only to change rights.

    Raise an error if there is no pending work.
    """
    pending = backend().pending
    if not pending:
        raise report(
            CerebroError("this function is for the extension's own use", sqlstate=INSUFFICIENT_PRIVILEGE)
        )
    try:
        carry_out(pending.pop(), registered.known())
    except CerebroError as error:
        raise report(error) from None


def end_look() -> None:
    """Remove the time limit and the locks of a reading with the rights of a run's caller.

    Each later task of a command calls this first, so that they are removed after a failure too.
    """
    if backend().looking:
        backend().looking = False
        interrupts.end_limit()
        interrupts.drop_own_locks()
