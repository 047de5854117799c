"""How a segment session notices a cancel: while it trains, and while it imports a large library."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cerebro_plpy.database import Database
from cerebro_plpy.store import session

TICK_SECONDS = 0.1


def ticker(db: Database) -> Callable[[], None]:
    """A function to call often: it lets the server act on a cancel, a few times a second at most."""
    last = time.monotonic()

    def tick() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TICK_SECONDS:
            last = now
            session.tick(db)

    return tick


class _Listener:
    """Stands first among the finders of modules, finds none, and looks for a cancel each time it is asked.

    It needs no base class, and that of importlib.abc would cost each session's first call a tenth.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self.error: BaseException | None = None

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        # Raised at every module from now on: packages may try to go on without what they cannot import.
        if self.error is not None:
            raise self.error
        try:
            self._tick()
        except BaseException as error:
            self.error = error
            raise


@contextmanager
def interruptible(tick: Callable[[], None]) -> Iterator[None]:
    """Let imports end with what `tick` raises; half a library stays behind, so the process must end too."""
    listener = _Listener(tick)
    sys.meta_path.insert(0, listener)
    try:
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
