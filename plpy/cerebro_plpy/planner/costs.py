"""How long visits and evaluations may take: the estimate before the run, corrected by what it has done."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

# Measuring is the way forward through the net; training goes back as well, and changes the weights.
EVALUATION_SHARE = 1 / 3
# One alone says little of how long the others take.
FEWEST = 4


@dataclass
class CostModel:
    """Seconds for each estimated second, learned for each kind of config while the run goes on."""

    _measured: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    # Of kinds of which there was none but the first of a session, which compiles.
    _first: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _count: int = 0

    def record(self, kind: Hashable, units: float, seconds: float, *, first: bool = False) -> None:
        """Note one: the newest counts half, and the first of a session only until there is another."""
        if first:
            self._first[kind] = (units, seconds)
            return
        self._count += 1
        before = self._measured.get(kind, (0.0, 0.0))
        self._measured[kind] = (before[0] / 2 + units, before[1] / 2 + seconds)

    @property
    def known(self) -> bool:
        """Whether there were some that compiled nothing."""
        return self._count >= FEWEST

    def seconds(self, kind: Hashable, units: float) -> float:
        """What so many units of this kind should take; a kind never seen takes the average of the others."""
        known = self._measured.get(kind)
        if known is None:
            totals = (self._measured or self._first).values()
            known = (sum(t[0] for t in totals), sum(t[1] for t in totals)) if totals else (1.0, 1.0)
        return units * known[1] / known[0] if known[0] else 0.0


def evaluations_due(done: int, until: int, frequency: int) -> int:
    """How often a config is measured after so many epochs: in each so many of them, and after the last."""
    return until // frequency - done // frequency + (until > done and until % frequency > 0)


@dataclass
class RunPace:
    """How much longer a run takes than its visits and evaluations: it merges, and waits for the processors.

    Below 1 where evaluations go on beside the visits of the same config. The newer half of its time says so,
    since what happens only once falls out of it. The view of progress has the same.
    """

    _begun: float | None = None
    # When each visit and evaluation of that half began and ended.
    _works: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, begin: float, end: float) -> None:
        """Note a visit or an evaluation, the newest."""
        self._begun = begin if self._begun is None else min(self._begun, begin)
        self._works.append((begin, end))
        half = (self._begun + end) / 2
        while self._works and self._works[0][1] <= half:
            self._works.popleft()

    def factor(self, at_work: int) -> float:
        """By what their seconds are to be multiplied, where so many segments have visits at a time."""
        if self._begun is None or not self._works:
            return 1.0
        now = max(end for _, end in self._works)
        half = (self._begun + now) / 2
        busy = sum(end - max(begin, half) for begin, end in self._works if end > half)
        return (now - half) * at_work / busy if busy else 1.0
