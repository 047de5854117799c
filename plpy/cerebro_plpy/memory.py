"""The memory of this process from one call to the next.

Each kind of object that is kept is a class with a constructor without arguments. The first `get_instance`
makes its one instance. The server's process has one memory; a test uses a fresh one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

# A state of more bytes is moved into a model and out of it, because a copy would double the memory.
LARGE_BYTES = 16 * 2**20
T = TypeVar("T")
K = TypeVar("K")


class Memory:
    def __init__(self) -> None:
        self._things: dict[type, Any] = {}

    def get_instance(self, kind: type[T]) -> T:
        """Return the instance of a class; make it if this memory has none yet."""
        if kind not in self._things:
            self._things[kind] = kind()
        return self._things[kind]

    @contextmanager
    def fresh(self) -> Generator[None]:
        """Within the block, have an empty memory; restore the former contents afterwards."""
        before, self._things = self._things, {}
        try:
            yield
        finally:
            self._things = before


def _go_on() -> None:
    """Do nothing: in a process that is no session, no cancel can arrive."""


class Pause:
    """Holds the function `take`, which code that works for long calls again and again.

    In a session, `take` looks for a cancel; in other processes, it does nothing.
    """

    def __init__(self) -> None:
        self.take: Callable[[], None] = _go_on


def kept(known: dict[K, T], key: K, most: int, make: Callable[[], T]) -> T:
    """Return `key`'s entry in the cache `known`; if missing, make it, and drop the oldest beyond `most`
    entries."""
    if key not in known:
        while len(known) >= most:
            known.pop(next(iter(known)))
        known[key] = make()
    return known[key]


def trim() -> None:
    """Return freed memory from the C library to the operating system."""
    # Another C library than glibc has no such call.
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


PROCESS = Memory()
get_instance = PROCESS.get_instance
