"""Threads of a session: what they return, and how they end."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from cerebro_plpy.threads import Threads, Tick


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
    """The session's tick runs in its own thread; calls that look for it end soon."""
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

    def work(tick: Tick) -> None:
        try:
            while True:
                tick()
                time.sleep(0.001)
        finally:
            ended.set()

    with pytest.raises(ValueError, match="not a number"):
        Threads(2, lambda: None).run([work, fail])
    assert ended.is_set()
