"""How a call comes in from SQL, and how an error leaves.

Errors of the package become the server's, with their SQLSTATE, DETAIL and HINT.
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
    """Return the exception that PL/Python makes an error of these fields; its name starts the message."""
    report = type("cerebro", (plpy.Error,), {"__module__": "__main__"})(printable(error.message))
    report.sqlstate = error.sqlstate
    report.detail = error.detail and printable(error.detail)
    report.hint = error.hint and printable(error.hint)
    return report


def carry_out(work: Callable[[], T], known: Sequence[registered.Function] = ()) -> T:
    """Do the work of a call, with `known` as the registered functions in scope.

    The caller turns an error into the server's: each frame that the new error passes is a line in the CONTEXT
    that a user reads.
    """
    interrupts.let_cancels_wait()
    memory.get_instance(memory.Pause).take = _look_for_cancel
    with registered.scope(known):
        return work()


def _look_for_cancel() -> None:
    interrupts.tick(Session())


def internal(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function that the extension's own code calls, or one that runs no statements."""

    @wraps(function)
    def begun(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return carry_out(partial(function, *arguments, **named))
        except CerebroError as error:
            raise report(error) from None

    return begun


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function that runs statements; refuse it where it may not run, before anything is loaded."""

    @wraps(function)
    def begun(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            work = partial(function, *arguments, **named)
            return carry_out(partial(_on_own_path, work, diagnoses=arguments[:1] == (DIAGNOSE,)))
        except CerebroError as error:
            raise report(error) from None

    return begun


def _on_own_path(work: Callable[[], T], diagnoses: bool) -> T:
    """Work with the extension's search_path, and note the caller's."""
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
    # An error of Greenplum's that jumped over our frames may have left it.
    backend().owner = False
    gangs.refuse_inside_queries()


def run_pending() -> None:
    """Run the pending work: the body of the SQL functions that exist only to change rights."""
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
    """End a look as the caller, even one that an error broke off: drop its time limit and its locks."""
    if backend().looking:
        backend().looking = False
        interrupts.end_limit()
        interrupts.drop_own_locks()
