"""How long a visit may take: the estimate before the run, corrected by the visits that it has made."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass
class CostModel:
    """Seconds for each estimated second, learned for each kind of config while the run goes on."""

    _measured: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def record(self, kind: Hashable, units: float, seconds: float) -> None:
        """Note a visit; the newest counts half, so that a first visit's compiling is soon forgotten."""
        before = self._measured.get(kind)
        if before is None:
            self._measured[kind] = (units, seconds)
        else:
            self._measured[kind] = (before[0] / 2 + units, before[1] / 2 + seconds)

    def seconds(self, kind: Hashable, units: float) -> float:
        """What so many units of this kind should take; a kind never seen takes the average of the others."""
        known = self._measured.get(kind)
        if known is None:
            totals = self._measured.values()
            known = (sum(t[0] for t in totals), sum(t[1] for t in totals)) if totals else (1.0, 1.0)
        return units * known[1] / known[0] if known[0] else 0.0
