"""Counts the bytes that lie on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class DeviceLedger:
    """A count of what is placed on a device and dropped again, and of the most that there was."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 0
        # What came from the host and went back to it.
        self.moved = 0

    def place(self, arrays: Iterable[Any]) -> None:
        self.held += sum(array.nbytes for array in arrays)
        self.most = max(self.most, self.held)

    def drop(self, arrays: Iterable[Any]) -> None:
        self.held -= sum(array.nbytes for array in arrays)

    def move(self, size: int) -> None:
        self.moved += size

    def run(self, extra: int) -> None:
        """Count what a program takes besides what is placed."""
        self.most = max(self.most, self.held + extra)
