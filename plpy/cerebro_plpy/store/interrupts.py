"""The interrupts of a session: cancels that the server holds, limits, and clocks."""

from __future__ import annotations

import ctypes
import math
import signal

from cerebro_plpy import memory
from cerebro_plpy.clocks import SINCE_BOOT, Clock
from cerebro_plpy.database import Database
from cerebro_plpy.errors import QUERY_CANCELED, CerebroError
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.session import seconds, setting

LOOK_SECONDS = 1800
# The server's number of the clock of statement_timeout, and the most seconds that a clock can be set to.
_STATEMENT_TIMEOUT = 3
_LONGEST = 2_000_000
# How long code that catches the cancel has to end before its session is ended.
_GRACE_SECONDS = 5
# How the server calls advisory locks.
_USER_LOCKS = 2
TICK = "SELECT"


def tick(db: Database) -> None:
    """Let the server act on a cancel if it has marked one, or each time if it shows no mark.

    A statement is expensive where it is sent to every segment, and a session that ends can run none.
    """
    if not has_mark() or _is_ending():
        return
    if is_greenplum(db):
        db.look_for_cancel()
    else:
        db.query(TICK)


_SERVER = ctypes.PyDLL(None)


def _find_mark() -> ctypes.c_int | None:
    """Return the flag that the server sets when it has something to act on, such as a cancel, or None."""
    try:
        return ctypes.c_int.in_dll(_SERVER, "InterruptPending")
    except ValueError:
        return None


def _find_switch(name: str) -> ctypes.c_bool | None:
    try:
        return ctypes.c_bool.in_dll(_SERVER, name)
    except ValueError:
        return None


_INTERRUPT = _find_mark()
_ENDING = _find_switch("proc_exit_inprogress")
# Whether the server interrupts Python, if it can.
_INTERRUPTS_PYTHON = _find_switch("PLy_enter_python_intepreter")


def _is_ending() -> bool:
    """Return whether this process is being ended, which calls the exit handlers of libraries."""
    return _ENDING is not None and _ENDING.value


def has_mark() -> bool:
    """Return whether the server may have something to act on."""
    return _INTERRUPT is None or bool(_INTERRUPT.value)


def must_look() -> bool:
    """Return whether to look for a cancel before a statement begins, when it would tear Python down."""
    return _INTERRUPTS_PYTHON is not None and has_mark()


def let_cancels_wait() -> None:
    """Have cancels wait until we look for them, at places where we can put things in order.

    Greenplum would let them interrupt Python anywhere, perhaps twice. It sets this anew with each call of a
    function and with each statement.
    """
    if _INTERRUPTS_PYTHON is not None:
        _INTERRUPTS_PYTHON.value = False


def look_seconds(db: Database) -> int:
    """Return how long code behind a table may take to let a run of the caller's read it; 0 is no limit."""
    fixed = int(setting(db, "look_seconds") or LOOK_SECONDS)
    own = seconds(db, db.query("SELECT pg_catalog.current_setting('statement_timeout') AS t")[0]["t"])
    # 0 is no limit, of either.
    return min((limit for limit in (fixed, math.ceil(own)) if limit), default=0)


def begin_limit(limit: int) -> None:
    """Have the server cancel what this session does if it takes longer than `limit` seconds; 0 is no limit.

    Segment sessions have no statement_timeout of their own, since it would end visits: its clock is free.
    """
    if limit:
        _SERVER.enable_timeout_after(_STATEMENT_TIMEOUT, min(limit, _LONGEST) * 1000)
        _end_session_in(limit + _GRACE_SECONDS)


def end_limit() -> None:
    _SERVER.disable_timeout(_STATEMENT_TIMEOUT, False)
    _end_session_in(0)


def begin_bound(limit: int) -> None:
    """Greenplum: have this segment process end if a user's code goes on after its limit; 0 is no limit.

    The coordinator cancels it in time; but SQL can catch that here too, and when the coordinator's session
    ends, a process that is busy does not notice.
    """
    memory.get_instance(_Ending).bound = limit
    if limit:
        _end_session_in(limit + _GRACE_SECONDS)


def end_bound() -> None:
    """Lift the bound on a user's code, if there is one, and release this process's advisory locks."""
    own = memory.get_instance(_Ending)
    if own.bound is not None:
        own.bound = None
        _end_session_in(0)
        drop_own_locks()


def drop_own_locks() -> None:
    """Give back this process's advisory locks without a statement, which all segments would be told of."""
    _SERVER.LockReleaseSession(_USER_LOCKS)


class _Ending:
    """The clock that ends this session in time."""

    def __init__(self) -> None:
        self.clock = Clock(SINCE_BOOT, signal.SIGTERM)
        # How long code of a user's may take that a segment's process has been told of.
        self.bound: int | None = None


def _end_session_in(seconds: int) -> None:
    """Have the kernel end this session after `seconds`, as pg_terminate_backend does; 0 takes that back.

    SQL can catch a cancel, as often as it comes, but not this. Without such a clock, there is only the
    cancel.
    """
    memory.get_instance(_Ending).clock.set(seconds)


def took_too_long(limit: int) -> CerebroError:
    return CerebroError(
        f"code behind a table that was read took longer than {limit} seconds",
        detail="It stands in a policy, a view or a function that they call.",
        hint="An administrator may raise the setting look_seconds.",
        sqlstate=QUERY_CANCELED,
    )
