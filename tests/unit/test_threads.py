"""Calls in threads of a session return their results in order, and end on errors and cancels."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from cerebro_plpy.threads import Threads, Tick


def work_on(ended: threading.Event, tick: Tick) -> None:
    """Call `tick` until it raises an error, then set `ended`."""
    try:
        while True:
            tick()
            time.sleep(0.001)
    finally:
        ended.set()


def test_results_come_in_the_order_of_the_calls() -> None:
    def wait(number: int, tick: Tick) -> tuple[int, bool]:
        time.sleep(0.02 * (3 - number))
        tick()
        return number, threading.current_thread() is threading.main_thread()

    calls = [partial(wait, number) for number in range(3)]
    assert Threads(3, lambda: None).run(calls) == [(0, False), (1, False), (2, False)]
    assert Threads(1, lambda: None).run(calls) == [(0, True), (1, True), (2, True)]
    assert Threads(3, lambda: None).run(calls[:1]) == [(0, True)]


def test_a_cancel_ends_all_calls() -> None:
    """The session's tick is called only in the main thread; if it raises, the calls in threads end soon."""
    rounds, asked = [0, 0], list[bool]()

    def cancel() -> None:
        asked.append(threading.current_thread() is threading.main_thread())
        if len(asked) > 2:
            raise KeyboardInterrupt

    def work(number: int, tick: Tick) -> None:
        while True:
            tick()
            rounds[number] += 1
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        Threads(2, cancel).run([partial(work, number) for number in range(2)])
    assert all(asked) and all(rounds)
    ended = list(rounds)
    time.sleep(0.05)
    assert rounds == ended


def test_the_first_error_ends_the_others() -> None:
    ended = threading.Event()

    def fail(tick: Tick) -> None:
        raise ValueError("not a number")

    with pytest.raises(ValueError, match="not a number"):
        Threads(2, lambda: None).run([partial(work_on, ended), fail])
    assert ended.is_set()


def test_a_stream_begins_no_more_calls_than_it_needs() -> None:
    """A stream takes the next call from its iterator in the main thread, only a few ahead of the results."""
    made, ended = list[int](), list[int]()

    def end(number: int, tick: Tick) -> int:
        tick()
        ended.append(number)
        return number

    def calls() -> Iterator[Callable[[Tick], int]]:
        for number in range(20):
            assert threading.current_thread() is threading.main_thread()
            made.append(number)
            yield partial(end, number)

    for count in (1, 2, 5):
        made.clear()
        with closing(Threads(count, lambda: None).stream(calls())) as results:
            for place, number in enumerate(results):
                assert number == place and len(made) <= place + count + 1
        assert sorted(ended[-20:]) == list(range(20))


def test_what_nobody_waits_for_is_ended() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(tick: Tick) -> None:
        begun.set()
        work_on(ended, tick)

    def calls() -> Iterator[Callable[[Tick], None]]:
        yield work
        begun.wait()
        raise ValueError("no more rows")

    with pytest.raises(ValueError, match="no more rows"):
        list(Threads(2, lambda: None).stream(calls()))
    assert ended.is_set()


def test_a_thread_gets_no_signal() -> None:
    def look(tick: Tick) -> set[int]:
        return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    for blocked in Threads(2, lambda: None).run([look, look]):
        assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM} <= blocked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
