"""The memory of this process from one call to the next.

Each kind of thing that is kept is a class that is made without arguments. Whoever asks for it first has it
made, and all of them go at once. The server's process has one memory; a test takes a fresh one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

# A state of more bytes is moved into a model and out of it, where a copy would take as much memory again.
LARGE_BYTES = 16 * 2**20
T = TypeVar("T")
K = TypeVar("K")


class Memory:
    def __init__(self) -> None:
        self._things: dict[type, Any] = {}

    def get_instance(self, kind: type[T]) -> T:
        """Return the one thing of a kind, making it first if needed."""
        if kind not in self._things:
            self._things[kind] = kind()
        return self._things[kind]

    @contextmanager
    def fresh(self) -> Generator[None]:
        """Begin with nothing, and put everything back afterwards."""
        before, self._things = self._things, {}
        try:
            yield
        finally:
            self._things = before


def _go_on() -> None:
    """Do nothing: nobody waits for this process."""


class Pause:
    """A pause that long work takes between two steps, so that a backend can act on a cancel."""

    def __init__(self) -> None:
        self.take: Callable[[], None] = _go_on


def kept(known: dict[K, T], key: K, most: int, make: Callable[[], T]) -> T:
    """Return what is known by a key, making it if needed; drop the oldest beyond `most`."""
    if key not in known:
        while len(known) >= most:
            known.pop(next(iter(known)))
        known[key] = make()
    return known[key]


def trim() -> None:
    """Give memory that was freed back to the system."""
    # Another C library than glibc has no such call.
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


PROCESS = Memory()
get_instance = PROCESS.get_instance
