"""Where a run stands: what each config has behind it and what a free segment may do next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cerebro_plpy.planner import costs, routes, schedule

VISIT, EVALUATE, MERGE = "visit", "evaluate", "merge"


@dataclass(frozen=True)
class Unit:
    """Something a segment can be asked to do for a config."""

    kind: str
    mst_key: int
    epoch: int
    segment: int
    stop: int = 0


@dataclass
class Config:
    """A config while its run goes on; `step` counts its committed visits."""

    mst_key: int
    backend: str
    kind: object
    visit_units: float
    epochs_before: int = 0
    step: int = 0
    visiting: bool = False
    failure: str | None = None
    loss: float | None = None


@dataclass
class Plan:
    """The fixed part of a run, and the queue of everything that is still to be done."""

    seed: int
    segments: int
    epochs: int
    evaluation_epochs: Sequence[int]
    configs: Mapping[int, Config]
    evaluated_before: Collection[tuple[int, int]] = ()
    costs: costs.CostModel = field(default_factory=costs.CostModel)
    _evaluations: dict[int, list[Unit]] = field(default_factory=dict)
    _measured: dict[tuple[int, int], int] = field(default_factory=dict)
    _under_way: dict[int, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._evaluations = {segment: [] for segment in range(self.segments)}
        for config in self.configs.values():
            for epoch in self.evaluation_epochs:
                due = config.failure is None and epoch * self.segments <= config.step
                if due and (config.mst_key, epoch) not in self.evaluated_before:
                    self._queue_evaluation(config.mst_key, epoch)

    @property
    def visits_total(self) -> int:
        return sum(self._steps for c in self.configs.values() if c.failure is None)

    @property
    def visits_done(self) -> int:
        return sum(c.step for c in self.configs.values() if c.failure is None)

    @property
    def _steps(self) -> int:
        return self.epochs * self.segments

    def done(self) -> bool:
        return not self._under_way and all(self._finished(c) for c in self.configs.values())

    def _finished(self, config: Config) -> bool:
        if config.failure is not None:
            return True
        return config.step == self._steps and not self._waits_for_evaluation(config.mst_key)

    def _waits_for_evaluation(self, mst_key: int) -> bool:
        return any(key == mst_key for key, _ in self._measured)

    def next(self, segment: int) -> Unit | None:
        """What a free segment does now: evaluations are short and somebody waits for them; then training."""
        if segment in self._under_way:
            return None
        if self._evaluations[segment]:
            unit = self._evaluations[segment].pop(0)
        else:
            unit = self._next_visit(segment)
        if unit is not None:
            self._under_way[segment] = unit
        return unit

    def _next_visit(self, segment: int) -> Unit | None:
        waiting = [c for c in self.configs.values() if self._stands_at(c, segment)]
        key = schedule.choose(schedule.Waiting(c.mst_key, self.remaining_seconds(c)) for c in waiting)
        if key is None:
            return None
        config = self.configs[key]
        epoch, stop = routes.place_of(config.step + 1, self.segments)
        config.visiting = True
        return Unit(VISIT, key, epoch, segment, stop)

    def _stands_at(self, config: Config, segment: int) -> bool:
        if config.visiting or config.failure is not None or config.step == self._steps:
            return False
        epoch, stop = routes.place_of(config.step + 1, self.segments)
        route = routes.route(self.seed, config.epochs_before + epoch, config.mst_key, self.segments)
        return route[stop] == segment

    def remaining_seconds(self, config: Config) -> float:
        left = self._steps - config.step
        return self.costs.seconds(config.kind, left * config.visit_units)

    def seconds_left(self) -> float:
        """An estimate for the whole run: the work left is shared, but no config can be in two visits."""
        left = [self.remaining_seconds(c) for c in self.configs.values() if c.failure is None]
        return max(sum(left) / self.segments, max(left, default=0.0))

    def visited(self, unit: Unit, seconds: float, loss: float | None) -> None:
        """A visit is committed."""
        self._under_way.pop(unit.segment)
        config = self.configs[unit.mst_key]
        config.visiting = False
        config.step += 1
        config.loss = loss
        self.costs.record(config.kind, config.visit_units, seconds)
        due = config.step % self.segments == 0 and unit.epoch in self.evaluation_epochs
        # A config that was taken a step back has perhaps been evaluated there before.
        if due and config.failure is None and (unit.mst_key, unit.epoch) not in self.evaluated_before:
            self._queue_evaluation(unit.mst_key, unit.epoch)

    def _queue_evaluation(self, mst_key: int, epoch: int) -> None:
        self._measured[mst_key, epoch] = 0
        for segment in range(self.segments):
            self._evaluations[segment].append(Unit(EVALUATE, mst_key, epoch, segment))

    def evaluated(self, unit: Unit) -> None:
        """One segment has measured; the last of them also sums up."""
        self._under_way.pop(unit.segment)
        if (unit.mst_key, unit.epoch) not in self._measured:
            return
        self._measured[unit.mst_key, unit.epoch] += 1
        if self._measured[unit.mst_key, unit.epoch] == self.segments:
            self._evaluations[unit.segment].insert(0, Unit(MERGE, unit.mst_key, unit.epoch, unit.segment))

    def merged(self, unit: Unit) -> None:
        self._under_way.pop(unit.segment)
        self._measured.pop((unit.mst_key, unit.epoch), None)

    def again(self, unit: Unit) -> None:
        """A unit was lost before it was committed; it is due once more."""
        self._under_way.pop(unit.segment)
        if unit.kind == VISIT:
            self.configs[unit.mst_key].visiting = False
        else:
            self._evaluations[unit.segment].insert(0, unit)

    def failed(self, unit: Unit, reason: str) -> None:
        """A config that cannot go on is left out from here; the others do not notice."""
        self._under_way.pop(unit.segment, None)
        config = self.configs[unit.mst_key]
        config.visiting = False
        config.failure = reason
        for queue in self._evaluations.values():
            queue[:] = [waiting for waiting in queue if waiting.mst_key != unit.mst_key]
        for key in [key for key in self._measured if key[0] == unit.mst_key]:
            del self._measured[key]

    def left(self, unit: Unit) -> None:
        """A unit ended whose config had failed elsewhere in the meantime."""
        self._under_way.pop(unit.segment, None)

    def under_way(self, segment: int) -> Unit:
        return self._under_way[segment]

    def needed_steps(self, mst_key: int) -> list[int]:
        """The states that must stay: the last, those that wait to be evaluated, and before each of them the
        one that it can be made from again."""
        waiting = {epoch * self.segments for key, epoch in self._measured if key == mst_key}
        needed = {self.configs[mst_key].step} | waiting
        return sorted(needed | {step - 1 for step in needed})

    def epoch_done_by_all(self) -> int:
        """The number of epochs that every config that still trains has behind it."""
        left: Iterable[int] = (c.step // self.segments for c in self.configs.values() if c.failure is None)
        return min(left, default=self.epochs)
