"""How long a visit may take: the estimate before the run, corrected by the visits that it has made."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass
class CostModel:
    """Seconds for each estimated second, learned for each kind of config while the run goes on."""

    _measured: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    # Of kinds that have made no visit but the first of a session, which compiles.
    _first: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def record(self, kind: Hashable, units: float, seconds: float, *, first: bool = False) -> None:
        """Note a visit: the newest counts half, and the first of a session only until there is another."""
        if first:
            self._first[kind] = (units, seconds)
            return
        before = self._measured.get(kind, (0.0, 0.0))
        self._measured[kind] = (before[0] / 2 + units, before[1] / 2 + seconds)

    @property
    def rests_on_visits(self) -> bool:
        """Whether there was a visit that did nothing but train."""
        return bool(self._measured)

    def seconds(self, kind: Hashable, units: float) -> float:
        """What so many units of this kind should take; a kind never seen takes the average of the others."""
        known = self._measured.get(kind)
        if known is None:
            totals = (self._measured or self._first).values()
            known = (sum(t[0] for t in totals), sum(t[1] for t in totals)) if totals else (1.0, 1.0)
        return units * known[1] / known[0] if known[0] else 0.0


@dataclass
class RunPace:
    """How much longer a run takes than its visits: it measures, merges, and waits for the processors.

    The newer half of its time says so, since what happens only once falls out of it. The view of progress has
    the same.
    """

    _begun: float | None = None
    # When each visit of that half began and ended.
    _visits: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, begin: float, end: float) -> None:
        """Note a visit, the newest."""
        self._begun = begin if self._begun is None else min(self._begun, begin)
        self._visits.append((begin, end))
        half = (self._begun + end) / 2
        while self._visits and self._visits[0][1] <= half:
            self._visits.popleft()

    def factor(self, at_work: int) -> float:
        """By what the seconds of visits are to be multiplied, where so many segments have work at a time."""
        if self._begun is None or not self._visits:
            return 1.0
        now = max(end for _, end in self._visits)
        half = (self._begun + now) / 2
        busy = sum(end - max(begin, half) for begin, end in self._visits if end > half)
        return max(1.0, (now - half) * at_work / busy) if busy else 1.0
