"""Lets a segment session notice a cancel while it trains, imports a library, or builds a net with Keras."""

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
# Seconds of processor time, so that a process that only waits is not interrupted.
_WORK_SECONDS = 0.2


def ticker(db: Database) -> Callable[[], None]:
    """Return a function that lets the server act on a cancel. It may be called often: it acts every 0.1 s."""
    last = time.monotonic()

    def tick() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TICK_SECONDS:
            last = now
            interrupts.tick(db)

    return tick


class _Listener:
    """A module finder that finds no module, but looks for a cancel at each import.

    It does not derive from a class of importlib.abc, because importing that module makes a session's first
    call slower.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self.error: BaseException | None = None

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        self.look()

    def look(self) -> None:
        # Raised at each import from now on, since a package may catch it and go on.
        if self.error is not None:
            raise self.error
        try:
            self._tick()
        except BaseException as error:
            self.error = error
            raise


def _ignore(number: int, frame: object) -> None:
    """Do nothing with a signal that the clock sent before it was stopped."""


class _WorkClock(Clock):
    """A clock that counts the processor time of this thread, and signals this thread only.

    The threads of the engines must not be interrupted by signals.
    """

    def __init__(self) -> None:
        super().__init__(WORK_OF_THREAD, signal.SIGVTALRM, to_this_thread=True)


@contextmanager
def _signals(look: Callable[[], None], busy: Callable[[], bool]) -> Iterator[None]:
    """Call `look` for each 0.2 s of processor time, by a signal, unless `busy` returns true.

    It is for code that never looks for a cancel, as Keras when it builds a large net. Afterwards the signal
    is ignored, because its default action would end the process.
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
    """Within the block, call `tick` at each import. The block ends with any error that `tick` raises.

    The process must end then, because a library may be half imported. If `busy` is given, also call `tick`
    during long work, except while `busy` returns true.
    """
    listener = _Listener(tick)
    sys.meta_path.insert(0, listener)
    try:
        with nullcontext() if busy is None else _signals(listener.look, busy):
            yield
    except BaseException:
        # A library may have turned the cancel into an error of its own.
        if listener.error is not None:
            raise listener.error from None
        raise
    finally:
        sys.meta_path.remove(listener)
    if listener.error is not None:
        raise listener.error
