"""Lets a segment session notice a cancel while it trains, imports a library, or has Keras make a net."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from cerebro_plpy import memory
from cerebro_plpy.clocks import WORK_OF_THREAD, Clock, handle_signals_apart
from cerebro_plpy.database import Database
from cerebro_plpy.store import interrupts

TICK_SECONDS = 0.1
# An amount of work, not of time: a process that waits need not be asked.
_WORK_SECONDS = 0.2


def ticker(db: Database) -> Callable[[], None]:
    """Return a function to call often: it lets the server act on a cancel, a few times a second at most."""
    last = time.monotonic()

    def tick() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TICK_SECONDS:
            last = now
            interrupts.tick(db)

    return tick


class _Listener:
    """A listener that looks for a cancel at every module that is imported.

    It is the first among the finders of modules, and finds none. It needs no base class, and that of
    importlib.abc would cost each session's first call a tenth.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self.error: BaseException | None = None

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        self.look()

    def look(self) -> None:
        # Raised each time from now on: packages may try to go on without what failed.
        if self.error is not None:
            raise self.error
        try:
            self._tick()
        except BaseException as error:
            self.error = error
            raise


def _ignore(number: int, frame: object) -> None:
    """Ignore a signal that is still on its way when nobody waits for it any more."""


class _WorkClock(Clock):
    """A clock of how long Python's own thread works.

    No other thread is signaled: those of the engines would not stand it.
    """

    def __init__(self) -> None:
        super().__init__(WORK_OF_THREAD, signal.SIGVTALRM, to_this_thread=True)


@contextmanager
def _signals(look: Callable[[], None], busy: Callable[[], bool]) -> Iterator[None]:
    """Look between two steps of Python's while it works: Keras makes and traces large nets for minutes, and
    knows no place to look at.

    The server has no use for this signal. It gets a function again, not its default, which is to end.
    """

    def signaled(number: int, frame: object) -> None:
        if not busy():
            look()

    handle_signals_apart()
    signal.signal(signal.SIGVTALRM, signaled)
    signal.siginterrupt(signal.SIGVTALRM, False)
    clock = memory.get_instance(_WorkClock)
    clock.set(_WORK_SECONDS, _WORK_SECONDS)
    try:
        yield
    finally:
        clock.set(0)
        signal.signal(signal.SIGVTALRM, _ignore)


@contextmanager
def interruptible(tick: Callable[[], None], busy: Callable[[], bool] | None = None) -> Iterator[None]:
    """Let imports end with what `tick` raises; half a library stays behind, so the process must end too.

    Given `busy`, long work ends in the same way, except while the session is busy with what notices cancels
    by itself.
    """
    listener = _Listener(tick)
    sys.meta_path.insert(0, listener)
    try:
        with nullcontext() if busy is None else _signals(listener.look, busy):
            yield
    except BaseException:
        # What a library makes of a cancel is some error of its own.
        if listener.error is not None:
            raise listener.error from None
        raise
    finally:
        sys.meta_path.remove(listener)
    if listener.error is not None:
        raise listener.error
