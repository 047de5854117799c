"""Threads of the session, which calculate while the session's own thread looks for cancels."""

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
# What a thread brings upon itself.
_FAULTS = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}
Tick = Callable[[], None]
Result = TypeVar("Result")


@contextlib.contextmanager
def no_signals() -> Generator[None]:
    """Block signals in threads made meanwhile: the server's are for its own thread alone, and a thread that
    is interrupted in one of oneDNN's kernels leaves the heap broken (clocks.py)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class Threads:
    """How many calls run at a time, and how the session looks for a cancel."""

    count: int
    tick: Tick

    def run(self, calls: Sequence[Callable[[Tick], Result]]) -> list[Result]:
        """Return what each call returns. Each is given a tick, which it calls now and then.

        Only the session's own thread may ask the server. Once it has found a cancel, ticks end the calls.
        """
        return list(self._results(calls, min(self.count, len(calls)), len(calls)))

    def stream(self, calls: Iterable[Callable[[Tick], Result]]) -> Generator[Result]:
        """Yield what each call returns, in the order of the calls, while a few calls after it run.

        The session's own thread makes the calls, which may take it to the server. Close the generator to end
        the calls that nobody waits for.
        """
        return self._results(calls, self.count, self.count + 1)

    def _results(self, calls: Iterable[Callable[[Tick], Result]], count: int, most: int) -> Generator[Result]:
        """Yield the results of calls, of which no more than `most` have begun before the first is taken."""
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
        """Take the first result; an error of any call that has ended ends all."""
        waiting = set[Future[Result]](begun)
        while not begun[0].done():
            done, waiting = wait(waiting, _LOOK_SECONDS, return_when="FIRST_COMPLETED")
            for one in done:
                one.result()
            self.tick()
        return begun.popleft().result()


def _go_on(stopped: threading.Event) -> None:
    """End a call whose result nobody waits for any more."""
    if stopped.is_set():
        raise CerebroError("the result is not asked for any more", sqlstate=QUERY_CANCELED)
