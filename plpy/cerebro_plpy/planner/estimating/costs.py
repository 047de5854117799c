"""Estimate how long visits and evaluations take, and correct the estimate by what the run has done."""

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
    """The seconds per estimated second, learned for each kind of config while the run goes on."""

    _measured: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    # For kinds seen only in a session's first visit, which compiles.
    _first: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _count: int = 0

    def record(self, kind: Hashable, units: float, seconds: float, *, first: bool = False) -> None:
        """Note a visit: the newest counts half, and a session's first counts only until there is another."""
        if first:
            self._first[kind] = (units, seconds)
            return
        self._count += 1
        before = self._measured.get(kind, (0.0, 0.0))
        self._measured[kind] = (before[0] / 2 + units, before[1] / 2 + seconds)

    @property
    def known(self) -> bool:
        """Whether enough visits that compiled nothing have been recorded."""
        return self._count >= FEWEST

    def seconds(self, kind: Hashable, units: float) -> float:
        """Return the seconds for `units` of this kind; an unseen kind takes the average of the others."""
        known = self._measured.get(kind)
        if known is None:
            totals = (self._measured or self._first).values()
            known = (sum(t[0] for t in totals), sum(t[1] for t in totals)) if totals else (1.0, 1.0)
        return units * known[1] / known[0] if known[0] else 0.0


def evaluations_due(done: int, until: int, frequency: int) -> int:
    """Return how many evaluations are due after `done` epochs: one every `frequency`, and after the last."""
    return until // frequency - done // frequency + (until > done and until % frequency > 0)


@dataclass
class RunPace:
    """The ratio of a run's time to that of its visits and evaluations, since it merges and waits as well.

    It is below 1 where evaluations go on beside the visits of the same config. Only the newer half of the run
    counts, so that what happens once falls out. The view of progress uses the same rule.
    """

    _begun: float | None = None
    # When each visit and evaluation of that half began and ended.
    _works: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, begin: float, end: float) -> None:
        """Note the newest visit or evaluation."""
        self._begun = begin if self._begun is None else min(self._begun, begin)
        self._works.append((begin, end))
        half = (self._begun + end) / 2
        while self._works and self._works[0][1] <= half:
            self._works.popleft()

    def factor(self, at_work: int) -> float:
        """Return the factor for the seconds of visits, with visits on `at_work` segments at a time."""
        if self._begun is None or not self._works:
            return 1.0
        now = max(end for _, end in self._works)
        half = (self._begun + now) / 2
        busy = sum(end - max(begin, half) for begin, end in self._works if end > half)
        return (now - half) * at_work / busy if busy else 1.0
