"""How long a visit may take: an estimate from the architecture, corrected by measured visits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

# What one mini-batch costs beside its arithmetic, in the estimate's unit (multiply-adds).
BATCH_OVERHEAD = 2_000_000
# An epoch's forward and backward pass, relative to the forward pass alone.
TRAINING_FACTOR = 3


def estimate(rows: int, passes: int, batch_size: int, flops_per_row: int) -> float:
    """The cost of one visit in an arbitrary unit; only ratios matter."""
    batches = -(-rows // batch_size)
    return float(passes * (rows * flops_per_row * TRAINING_FACTOR + batches * BATCH_OVERHEAD))


@dataclass
class CostModel:
    """Seconds for each unit of the estimate, learned for each kind of config while the run goes on."""

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
            known = (sum(t[0] for t in totals), sum(t[1] for t in totals)) if totals else (1e9, 1.0)
        return units * known[1] / known[0] if known[0] else 0.0
