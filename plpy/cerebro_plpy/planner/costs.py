"""How long a visit may take: the estimate before the run, corrected by the visits that it has made."""

from __future__ import annotations

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
