"""Threads that compute while the session's main thread looks for cancels."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cerebro_plpy.errors import QUERY_CANCELED, CerebroError

# How often the session looks for a cancel.
_LOOK_SECONDS = 0.05
# Signals for errors of the thread that gets them; these are never blocked.
_FAULTS = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}
Tick = Callable[[], None]
Result = TypeVar("Result")


@contextlib.contextmanager
def no_signals() -> Generator[None]:
    """Block signals in threads that are started within the block.

    The server's signals are for its main thread only, and a signal that interrupts a kernel of oneDNN in
    another thread corrupts the heap (clocks.py).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class Threads:
    """Runs calls in up to `count` threads, while the main thread looks for a cancel by `tick`."""

    count: int
    tick: Tick

    def run(self, calls: Sequence[Callable[[Tick], Result]]) -> list[Result]:
        """Run all calls and return their results, in order.

        Each call gets a function that it must call now and then. After a cancel, this function raises an
        error, which ends the call.
        """
        return list(self._results(calls, min(self.count, len(calls)), len(calls)))

    def stream(self, calls: Iterable[Callable[[Tick], Result]]) -> Generator[Result]:
        """Yield the result of each call, in order, while the next few calls already run.

        The main thread iterates over `calls`, so that the iterator may use the server. Closing the generator
        ends the calls that still run.
        """
        return self._results(calls, self.count, self.count + 1)

    def _results(self, calls: Iterable[Callable[[Tick], Result]], count: int, most: int) -> Generator[Result]:
        """Yield the results of calls in order, with at most `most` calls begun and not yet yielded."""
        if count < 2:
            for call in calls:
                yield call(self.tick)
            return
        stopped, begun = threading.Event(), deque[Future[Result]]()
        with ThreadPoolExecutor(count) as pool:
            try:
                for call in calls:
                    with no_signals():
                        begun.append(pool.submit(call, partial(_go_on, stopped)))
                    if len(begun) == most:
                        yield self._await(begun)
                while begun:
                    yield self._await(begun)
            except BaseException:
                stopped.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _await(self, begun: deque[Future[Result]]) -> Result:
        """Wait for the first begun call and return its result; if any call has failed, raise its error."""
        waiting = set[Future[Result]](begun)
        while not begun[0].done():
            done, waiting = wait(waiting, _LOOK_SECONDS, return_when="FIRST_COMPLETED")
            for one in done:
                one.result()
            self.tick()
        return begun.popleft().result()


def _go_on(stopped: threading.Event) -> None:
    """Raise an error if the calls have been stopped; each call in a thread uses this as its tick."""
    if stopped.is_set():
        raise CerebroError("the result is not asked for any more", sqlstate=QUERY_CANCELED)
