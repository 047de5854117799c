"""Counts the bytes that lie on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class DeviceLedger:
    """A count of the bytes that lie on a device (`held`), and of the most that have been there (`most`)."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 0
        # The bytes that were copied from the host to the device, and back.
        self.moved = 0

    def place(self, arrays: Iterable[Any]) -> None:
        self.held += sum(array.nbytes for array in arrays)
        self.most = max(self.most, self.held)

    def drop(self, arrays: Iterable[Any]) -> None:
        self.held -= sum(array.nbytes for array in arrays)

    def move(self, size: int) -> None:
        self.moved += size

    def run(self, extra: int) -> None:
        """Count the `extra` bytes that a program takes only while it computes: in `most`, not in `held`."""
        self.most = max(self.most, self.held + extra)
