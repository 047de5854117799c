"""Interrupts of a session: cancels that it acts on later, time limits on a user's code, and timers."""

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
    """Let the server act on a cancel that it has received.

    Do nothing if the server's interrupt flag shows that there is none, since a statement is expensive where
    it is sent to every segment. Do nothing either in a process that is ending, which can run no statement.
    """
    if not has_mark() or _is_ending():
        return
    if is_greenplum(db):
        db.look_for_cancel()
    else:
        db.query(TICK)


_SERVER = ctypes.PyDLL(None)


def _find_mark() -> ctypes.c_int | None:
    """Return the server's interrupt flag, which is set when it has, for example, a cancel to act on; None if
    the server has no such variable."""
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
    """Return whether this process is ending, during which exit handlers of libraries may call Python."""
    return _ENDING is not None and _ENDING.value


def has_mark() -> bool:
    """Return whether the server's interrupt flag is set; also True if the flag cannot be read."""
    return _INTERRUPT is None or bool(_INTERRUPT.value)


def must_look() -> bool:
    """Return whether this session must look for a cancel before it begins a statement.

    It must on Greenplum, if the server may have received a cancel: during the statement, the cancel would
    jump over Python's frames.
    """
    return _INTERRUPTS_PYTHON is not None and has_mark()


def let_cancels_wait() -> None:
    """Keep the server from interrupting Python for a cancel until the code looks for cancels itself.

    Greenplum would let a cancel interrupt Python anywhere, perhaps twice. It allows this again whenever SQL
    calls a function in Python or Python runs a statement, so this must be called after each of these.
    """
    if _INTERRUPTS_PYTHON is not None:
        _INTERRUPTS_PYTHON.value = False


def look_seconds(db: Database) -> int:
    """Return the most seconds that a user's code, such as a view or a policy, may take while the caller's
    tables are read; 0 is no limit."""
    fixed = int(setting(db, "look_seconds") or LOOK_SECONDS)
    own = seconds(db, db.query("SELECT pg_catalog.current_setting('statement_timeout') AS t")[0]["t"])
    # 0 is no limit, of either.
    return min((limit for limit in (fixed, math.ceil(own)) if limit), default=0)


def begin_limit(limit: int) -> None:
    """Have the server cancel this session's statement after `limit` seconds; 0 is no limit.

    If a user's code ignores the cancel, the session is ended a few seconds later. The server's timer for
    statement_timeout serves for this: a segment session has no statement_timeout, since that would end
    visits.
    """
    if limit:
        _SERVER.enable_timeout_after(_STATEMENT_TIMEOUT, min(limit, _LONGEST) * 1000)
        _end_session_in(limit + _GRACE_SECONDS)


def end_limit() -> None:
    _SERVER.disable_timeout(_STATEMENT_TIMEOUT, False)
    _end_session_in(0)


def begin_bound(limit: int) -> None:
    """On Greenplum, have this segment's process end if a user's code exceeds `limit` seconds; 0 is no limit.

    The coordinator cancels the code in time, but the code can catch the cancel. And a process that is busy
    does not notice when the coordinator's session ends.
    """
    memory.get_instance(_Ending).bound = limit
    if limit:
        _end_session_in(limit + _GRACE_SECONDS)


def end_bound() -> None:
    """Remove the time limit that `begin_bound` has set, if there is one, and release this process's advisory
    locks."""
    own = memory.get_instance(_Ending)
    if own.bound is not None:
        own.bound = None
        _end_session_in(0)
        drop_own_locks()


def drop_own_locks() -> None:
    """Release this process's advisory locks without a statement, which the server would announce to all
    segments."""
    _SERVER.LockReleaseSession(_USER_LOCKS)


class _Ending:
    """The timer that ends this session when a user's code takes too long."""

    def __init__(self) -> None:
        self.clock = Clock(SINCE_BOOT, signal.SIGTERM)
        # The seconds that a user's code may take in this segment's process; None while no bound is set.
        self.bound: int | None = None


def _end_session_in(seconds: int) -> None:
    """Have the kernel end this session after `seconds`, as pg_terminate_backend would; 0 stops the timer.

    SQL can catch every cancel, but it cannot catch this. On a system without such timers, only cancels limit
    the code.
    """
    memory.get_instance(_Ending).clock.set(seconds)


def took_too_long(limit: int) -> CerebroError:
    return CerebroError(
        f"code behind a table that was read took longer than {limit} seconds",
        detail="It stands in a policy, a view or a function that they call.",
        hint="An administrator may raise the setting look_seconds.",
        sqlstate=QUERY_CANCELED,
    )
