"""A setting that a call has read is kept for the rest of the call, but at most for a second."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_plpy import database, memory


class Called:
    """Stands for a session; only the time at which its call began is needed."""

    def __init__(self, called_at: float) -> None:
        self.called_at = called_at


def _reads() -> tuple[Any, list[int]]:
    asked: list[int] = []

    def read(_db: Any, number: int) -> int:
        asked.append(number)
        return len(asked)

    return database.kept_for_call(read), asked


def test_a_call_reads_once_and_the_next_one_reads_anew() -> None:
    read, asked = _reads()
    with memory.PROCESS.fresh():
        first, second = Called(1.0), Called(2.0)
        assert [read(first, 7), read(first, 7), read(first, 8), read(second, 7)] == [1, 1, 2, 3]
    assert asked == [7, 8, 7]


def test_a_long_call_reads_again_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = _reads()
    clock = [0.0]
    monkeypatch.setattr(database.time, "monotonic", lambda: clock[0])
    with memory.PROCESS.fresh():
        call = Called(1.0)
        for clock[0] in (10.0, 10.9, 11.0, 11.5):
            read(call, 7)
    assert asked == [7, 7]
