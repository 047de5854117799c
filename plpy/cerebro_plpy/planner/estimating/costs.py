"""Estimates how long visits and evaluations take, and corrects the estimates by the run's own times."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

# Measuring is the way forward through the net; training goes back as well, and changes the weights.
EVALUATION_SHARE = 1 / 3
# One visit alone says little about how long other visits take.
FEWEST = 4


@dataclass
class CostModel:
    """The measured seconds per estimated second of each kind of config, learned while the run goes on."""

    _measured: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    # For kinds seen only in a session's first visit, which compiles.
    _first: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _count: int = 0

    def record(self, kind: Hashable, units: float, seconds: float, *, first: bool = False) -> None:
        """Record the time of a visit; `units` are its estimated seconds.

        The newest visit of a kind counts about as much as all earlier ones together. A session's `first`
        visit, which compiles, counts only until there is another visit.
        """
        if first:
            self._first[kind] = (units, seconds)
            return
        self._count += 1
        before = self._measured.get(kind, (0.0, 0.0))
        self._measured[kind] = (before[0] / 2 + units, before[1] / 2 + seconds)

    @property
    def known(self) -> bool:
        """Whether enough visits have been recorded in which nothing was compiled."""
        return self._count >= FEWEST

    def seconds(self, kind: Hashable, units: float) -> float:
        """Return the seconds that `units` estimated seconds will really take.

        For a kind that is not measured yet, the mean of all measured kinds counts.
        """
        known = self._measured.get(kind)
        if known is None:
            totals = (self._measured or self._first).values()
            known = (sum(t[0] for t in totals), sum(t[1] for t in totals)) if totals else (1.0, 1.0)
        return units * known[1] / known[0] if known[0] else 0.0


def evaluations_due(done: int, until: int, frequency: int) -> int:
    """Return how many evaluations are due after epoch `done` and up to epoch `until`.

    They are due after every `frequency`th epoch, and after epoch `until`.
    """
    return until // frequency - done // frequency + (until > done and until % frequency > 0)


@dataclass
class RunPace:
    """The ratio of a run's time to the time of its visits and evaluations.

    A run also merges and waits. The ratio is below 1 if evaluations go on beside visits of the same
    config. Only the newer half of the run counts, so that the cost of things that happen once is left out.
    The view of progress uses the same rule.
    """

    _begun: float | None = None
    # When each visit and evaluation of the newer half began and ended.
    _works: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, begin: float, end: float) -> None:
        """Record when the newest visit or evaluation began and ended."""
        self._begun = begin if self._begun is None else min(self._begun, begin)
        self._works.append((begin, end))
        half = (self._begun + end) / 2
        while self._works and self._works[0][1] <= half:
            self._works.popleft()

    def factor(self, at_work: int) -> float:
        """Return the factor that turns seconds of visits and evaluations into seconds of the run.

        `at_work` is how many segments work at a time.
        """
        if self._begun is None or not self._works:
            return 1.0
        now = max(end for _, end in self._works)
        half = (self._begun + now) / 2
        busy = sum(end - max(begin, half) for begin, end in self._works if end > half)
        return (now - half) * at_work / busy if busy else 1.0
