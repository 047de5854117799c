"""Stops each config of a fit call that does not get better any more, or that has reached the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cerebro_plpy.logical.search.template import Decision, GoOn, Result, Stop


@dataclass
class EarlyStopping:
    """A procedure that trains every config up to its next evaluation, as long as the config gets better.

    Lower values are better. If a higher metric is better, `target` has the opposite sign, like the results.
    """

    mst_keys: Sequence[int]
    epochs: int
    frequency: int
    patience: int | None = None
    min_delta: float = 0.0
    target: float | None = None
    _best: dict[int, float] = field(default_factory=dict)
    _waited: dict[int, int] = field(default_factory=dict)

    def begin(self) -> list[Decision]:
        return [self._go_on(key, 0) for key in self.mst_keys]

    def observe(self, result: Result) -> list[Decision]:
        if result.value is None or result.epoch >= self.epochs:
            return []
        reason = self._reason_to_stop(result.mst_key, result.value)
        return [self._go_on(result.mst_key, result.epoch) if reason is None else Stop(result.mst_key, reason)]

    def _go_on(self, mst_key: int, epoch: int) -> GoOn:
        reason = "it begins" if epoch == 0 else "it may get better"
        return GoOn(mst_key, min(self.epochs, (epoch // self.frequency + 1) * self.frequency), reason)

    def _reason_to_stop(self, key: int, value: float) -> str | None:
        if self.target is not None and value <= self.target:
            return "it reached the target"
        if key not in self._best or value < self._best[key] - self.min_delta:
            self._best[key] = value
            self._waited[key] = 0
            return None
        self._waited[key] += 1
        if self.patience is None or self._waited[key] < self.patience:
            return None
        return f"it got no better in {self._waited[key]} evaluations"
