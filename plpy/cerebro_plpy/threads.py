"""Threads of the session, which calculate while the session's own thread looks for cancels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cerebro_plpy.errors import QUERY_CANCELED, CerebroError

# How often the session looks for a cancel.
_LOOK_SECONDS = 0.05
Tick = Callable[[], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Threads:
    """How many calls run at a time, and how the session looks for a cancel."""

    count: int
    tick: Tick

    def run(self, calls: Sequence[Callable[[Tick], Result]]) -> list[Result]:
        """Return what each call returns. Each is given a tick, which it calls now and then.

        Only the session's own thread may ask the server. Once it has found a cancel, ticks end the calls.
        """
        count = min(self.count, len(calls))
        if count < 2:
            return [call(self.tick) for call in calls]
        stopped = threading.Event()
        with ThreadPoolExecutor(count) as pool:
            found = [pool.submit(call, partial(_go_on, stopped)) for call in calls]
            try:
                self._await(found)
            except BaseException:
                stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
        return [one.result() for one in found]

    def _await(self, found: Sequence[Future[Result]]) -> None:
        waiting = set(found)
        while waiting:
            done, waiting = wait(waiting, _LOOK_SECONDS)
            for one in done:
                one.result()
            self.tick()


def _go_on(stopped: threading.Event) -> None:
    """End a call whose result nobody waits for any more."""
    if stopped.is_set():
        raise CerebroError("the result is not asked for any more", sqlstate=QUERY_CANCELED)
