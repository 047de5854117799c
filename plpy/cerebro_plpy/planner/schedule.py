"""Choose the waiting config that a free segment takes next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A config whose next stop is the segment at hand."""

    mst_key: int
    remaining_seconds: float


def choose(waiting: Iterable[Waiting]) -> int | None:
    """Return the config with the longest remaining time; among equals, the one with the smallest key."""
    best = max(waiting, key=lambda w: (w.remaining_seconds, -w.mst_key), default=None)
    return None if best is None else best.mst_key
