"""The plan of a run: the progress of each config, and the next unit of work for a free segment.

`Plan.next` returns evaluations first, unless the config that will end last waits. Then it chooses the
config with the longest time left (`costs`, `schedule`) whose route (`routes`) has this segment next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cerebro_plpy.logical.options import EXACT
from cerebro_plpy.planner import bundles, keeping, routes, schedule
from cerebro_plpy.planner.estimating import remaining
from cerebro_plpy.planner.estimating.costs import CostModel
from cerebro_plpy.planner.units import AVERAGE, BUNDLE, EVALUATE, MERGE, PART, VISIT, Config, PartDone, Unit


@dataclass
class Plan:
    """The plan of a run: all work that is still to be done. It may change while the run goes on."""

    seed: int
    segments: int
    epochs: int
    frequency: int
    configs: dict[int, Config]
    evaluated: set[tuple[int, int]] = field(default_factory=set)
    keeps_best: bool = False
    # If True, no config begins an epoch while another config that trains has completed fewer epochs.
    even: bool = False
    # From this epoch on, all segments train a config at once, from the same state, and average their states.
    average_from: int | None = None
    visits_limit: int | None = None
    # Seconds until the time is up, once there is a model: no config begins that would end later.
    time_left: float | None = None
    costs: CostModel = field(default_factory=CostModel)
    # Evaluation cost per segment, in visits.
    evaluation_costs: CostModel = field(default_factory=CostModel)
    paused: bool = False
    # The number of epochs in a visit of a bundle, or None for as many as keep the visit short.
    checkpoint: int | None = None
    # Whether the run may end before all is done: bundles take turns then, an epoch at a time.
    budgeted: bool = False
    _evaluations: dict[int, list[Unit]] = field(default_factory=dict)
    measured: dict[tuple[int, int], int] = field(default_factory=dict)
    # For groups on one segment: the epoch after which each is evaluated by a visit without training.
    _awaited: dict[int, int] = field(default_factory=dict)
    _under_way: dict[int, Unit] = field(default_factory=dict)
    # Each kind of config with each segment where it has trained, and where it was measured.
    _warm: set[tuple[object, int, bool]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._evaluations = {segment: [] for segment in range(self.segments)}
        self._bundles = bundles.Bundles(self.configs.values())
        # The configs that hop.
        self._hopping = [config for config in self.configs.values() if config.home is None]

    def take_up(self) -> None:
        """Queue the evaluations and averagings that are due when the run begins or is resumed."""
        for config in self.configs.values():
            if not self.epochs:
                self._queue_evaluation(config, 0)
            if len(config.parts) == self.segments:
                self._queue_average(config)
            for epoch in range(self._first_epoch(config) + 1, self.whole_epochs(config) + 1):
                if epoch % self.frequency == 0:
                    self._queue_evaluation(config, epoch)
            self.settle(config.mst_key)

    @property
    def visits_total(self) -> int:
        return sum(c.step + self.visits_left(c) - c.first_step for c in self._counted())

    @property
    def visits_done(self) -> int:
        return sum(c.step - c.first_step + len(c.parts) for c in self._counted())

    @property
    def visits_begun(self) -> int:
        """The number of visits that all configs, failed ones too, have begun; `visits_limit` limits it."""
        return sum(c.step - c.first_step + self._begun(c) for c in self.configs.values())

    def _begun(self, config: Config) -> int:
        """Return how many visits of a config are under way: several in a bundle or in an averaged epoch."""
        if config.home is not None:
            return self.begun_step(config.mst_key) - config.step
        return self.segments if config.amid_epoch else int(config.visiting)

    def averages(self, config: Config) -> bool:
        """Return whether all segments train the config's current epoch at once and average their states."""
        return self.average_from is not None and self.whole_epochs(config) + 1 >= self.average_from

    def _counted(self) -> list[Config]:
        return [c for c in self.configs.values() if c.failure is None]

    def whole_epochs(self, config: Config) -> int:
        return config.step // self.segments

    def _first_epoch(self, config: Config) -> int:
        return config.first_step // self.segments

    def result_step(self, config: Config) -> int | None:
        """Return the step of the config's result, after its best or its last whole epoch, or None."""
        if config.is_out or config.step == 0:
            return None
        if (best := self.best_epoch(config)) is not None:
            return best * self.segments
        step = self.whole_epochs(config) * self.segments
        return step if step > config.first_step else None

    def best_epoch(self, config: Config) -> int | None:
        """Return the config's best epoch if the run keeps the best state and not the last one, else None."""
        return config.best[1] if self.keeps_best and config.best is not None else None

    def done(self) -> bool:
        if self._under_way or self.paused:
            return False
        if self.measured or any(self.visits_left(c) for c in self._hopping):
            return False
        return not self._bundles.any_left(self._has_left)

    def rests(self) -> bool:
        """Return whether no unit is under way and none can begin, although configs may have visits left."""
        waits = any(self._waiting(segment) for segment in range(self.segments))
        return not (waits or self._under_way or self.measured or self._bundles.any_left(self._has_left))

    def _has_left(self, bundle: bundles.Bundle) -> bool:
        return any(self._is_left(self.configs[key]) for key in bundle.members)

    def _is_left(self, config: Config) -> bool:
        """Return whether a config of a bundle has to be trained or, without training, evaluated."""
        return self.visits_left(config) > 0 or config.mst_key in self._awaited

    def visits_left(self, config: Config) -> int:
        last = config.until * self.segments if config.stop_at is None else config.stop_at
        return 0 if config.is_out else max(0, last - config.step)

    def trains(self, mst_key: int) -> bool:
        """Return whether a config has visits left."""
        return self.visits_left(self.configs[mst_key]) > 0

    def next(self, segment: int) -> Unit | None:
        """Return the next unit for a free segment, or None: evaluations first, then training.

        Evaluations are short, and somebody waits for them. Only a config that will end last goes before
        them, because the end of the run would wait for it.
        """
        if segment in self._under_way or self.paused:
            return None
        if self._evaluations[segment] and not self._presses(segment):
            first, *waiting = self._evaluations[segment]
            unit, self._evaluations[segment] = bundles.measured_together(first, waiting, self.configs)
        else:
            unit = self._next_visit(segment) or self._next_bundle(segment)
        if unit is not None:
            self._under_way[segment] = unit
        return unit

    def _presses(self, segment: int) -> bool:
        """Return whether the segment's next config has more work left than an even share of all work left."""
        config, left = self._next_config(segment), map(self.remaining_seconds, self._hopping)
        return config is not None and schedule.presses(self.remaining_seconds(config), left, self.segments)

    def _next_config(self, segment: int) -> Config | None:
        left = (schedule.Waiting(c.mst_key, self.remaining_seconds(c)) for c in self._waiting(segment))
        key = schedule.choose(left)
        return None if key is None else self.configs[key]

    def _waiting(self, segment: int) -> list[Config]:
        waiting = [c for c in self._hopping if self._stands_at(c, segment)]
        if self.visits_limit is not None and self.visits_begun >= self.visits_limit:
            waiting = [c for c in waiting if c.amid_epoch]
        if self.time_left is not None:
            waiting = [c for c in waiting if schedule.ends_in_time(self, c, self.time_left)]
        if self.even:
            least = min((self.whole_epochs(c) for c in self._going()), default=0)
            waiting = [c for c in waiting if self.whole_epochs(c) <= least]
        return waiting

    def _going(self) -> list[Config]:
        return [c for c in self.configs.values() if self.visits_left(c)]

    def even_epoch(self) -> int | None:
        """Return the last epoch evaluated for all configs that train, if the run is `even`, else None."""
        going = self._going()
        if not self.even or not going:
            return None
        last = {c.mst_key: 0 for c in going}
        for key, epoch in self.evaluated:
            if key in last:
                last[key] = max(last[key], epoch)
        return min(last.values())

    def _next_visit(self, segment: int) -> Unit | None:
        config = self._next_config(segment)
        if config is None:
            return None
        key = config.mst_key
        epoch, stop = routes.place_of(config.step + 1, self.segments)
        if self.averages(config):
            config.visiting = True
            config.busy.add(segment)
            return Unit(PART, key, epoch, segment, segment)
        going = [c for c in self._going() if c.home is None]
        found = bundles.together(config, self._waiting(segment), going, self.segments)
        if self.visits_limit is not None:
            found = found[: max(1, self.visits_limit - self.visits_begun)]
        for each in found:
            each.visiting = True
        if config.alike is None or (len(found) == 1 and not config.batched):
            return Unit(VISIT, key, epoch, segment, stop)
        keys = tuple(c.mst_key for c in found)
        return Unit(BUNDLE, key, epoch, segment, stop, members=keys, until=epoch, form=config.alike.form)

    def _next_bundle(self, segment: int) -> Unit | None:
        """Return a visit of the segment's first open bundle for its least trained members, or None."""
        bundle = self._bundles.first(segment, self._has_left)
        if bundle is None:
            return None
        left = [c for c in map(self.configs.__getitem__, bundle.members) if self._is_left(c)]
        step = min(c.step for c in left)
        now, first = [c for c in left if c.step == step], step // self.segments
        unmeasured = bundles.part([c for c in now if c.mst_key in self._awaited])
        if unmeasured:
            return self._bundle_of(unmeasured, segment, first, first, [first])
        # Only configs that end together, so that the evaluations of one do not depend on others.
        last = min((step + self.visits_left(c)) // self.segments for c in now)
        now = bundles.part([c for c in now if (step + self.visits_left(c)) // self.segments == last])
        until = min(last, first + self._epochs_at_once(now, first))
        if self.budgeted:
            self._bundles.rotate(segment)
            now = now[: self._most_begun(until - first)]
            if not now:
                return None
        measured = [e for e in range(first + 1, until + 1) if e % self.frequency == 0 or e == last]
        return self._bundle_of(now, segment, first, until, measured)

    def _bundle_of(
        self, configs: list[Config], segment: int, after: int, until: int, measured: list[int]
    ) -> Unit:
        for config in configs:
            config.visiting = True
        keys = tuple(c.mst_key for c in configs)
        form = EXACT if configs[0].alike is None else configs[0].alike.form
        unit = Unit(BUNDLE, keys[0], after + 1, segment, members=keys, form=form)
        return replace(unit, until=until, measured=tuple(measured))

    def _most_begun(self, epochs: int) -> int | None:
        """Return how many groups may begin `epochs` epochs with the visits left; None without a limit."""
        if self.visits_limit is None:
            return None
        return -(-max(0, self.visits_limit - self.visits_begun) // (self.segments * epochs))

    def _epochs_at_once(self, configs: list[Config], after: int) -> int:
        if self.keeps_best:
            # Each state that is measured may be the one that stays.
            return self.frequency - after % self.frequency
        if self.budgeted:
            return 1
        if self.checkpoint is not None:
            return self.checkpoint
        epoch = sum(self.costs.seconds(c.kind, self.segments * c.visit_units) for c in configs)
        return max(1, int(bundles.CHECKPOINT_SECONDS / max(epoch, 1e-9)))

    def _stands_at(self, config: Config, segment: int) -> bool:
        if self.averages(config) and self.visits_left(config):
            return segment not in config.busy and segment not in config.parts
        if config.visiting or not self.visits_left(config):
            return False
        epoch, stop = routes.place_of(config.step + 1, self.segments)
        route = routes.route(self.seed, config.epochs_before + epoch, config.key, self.segments)
        return route[stop] == segment

    def remaining_seconds(self, config: Config) -> float:
        return self.costs.seconds(config.kind, self.visits_left(config) * config.visit_units)

    def seconds_left(self) -> float | None:
        return remaining.seconds_left(self, self.measured)

    def visited(self, unit: Unit, seconds: float, loss: float | None) -> None:
        """Record a committed visit with its seconds and its loss."""
        self._under_way.pop(unit.segment)
        self._note_cost(unit, seconds)
        self._stepped(self.configs[unit.mst_key], unit.epoch, loss)

    def _stepped(self, config: Config, epoch: int, loss: float | None) -> None:
        config.visiting, config.at_most = False, None
        config.step += 1
        config.loss = loss
        if config.step % self.segments == 0 and epoch % self.frequency == 0:
            self._queue_evaluation(config, epoch)
        self.settle(config.mst_key)

    def bundled(
        self, unit: Unit, seconds: float, losses: list[float | None], failures: dict[int, str]
    ) -> None:
        """Record a committed visit of a bundle; `failures` has the configs that failed and were left out."""
        self._under_way.pop(unit.segment)
        units = 0.0
        for key, loss in zip(unit.members, losses, strict=True):
            config = self.configs[key]
            visits = 1 if config.home is None else self.segments * (unit.until - unit.epoch + 1)
            units += config.visit_units * visits
            if key in failures:
                config.visiting, config.failure = False, failures[key]
                self._measure_no_more(key)
                continue
            if config.home is None:
                self._stepped(config, unit.epoch, loss)
                continue
            config.visiting, config.at_most = False, None
            self._awaited.pop(key, None)
            if unit.until >= unit.epoch:
                config.step, config.loss = unit.until * self.segments, loss
            self.evaluated.update((key, epoch) for epoch in unit.measured)
            self.settle(key)
        config = self.configs[unit.mst_key]
        if units:
            self.costs.record(config.kind, units, seconds, first=self._first_at(unit, config))

    def _note_cost(self, unit: Unit, seconds: float) -> None:
        config = self.configs[unit.mst_key]
        self.costs.record(config.kind, config.visit_units, seconds, first=self._first_at(unit, config))

    def _first_at(self, unit: Unit, config: Config) -> bool:
        """Return whether the unit is the first of its kind on its segment, where it has to compile."""
        place = config.kind, unit.segment, unit.kind == EVALUATE
        first = place not in self._warm
        self._warm.add(place)
        return first

    def parted(self, unit: Unit, seconds: float, part: PartDone) -> None:
        """Record the committed visit of one segment in an epoch whose states are averaged."""
        self._under_way.pop(unit.segment)
        config = self.configs[unit.mst_key]
        config.busy.discard(unit.segment)
        config.parts[unit.segment] = part
        config.loss = part.loss
        self._note_cost(unit, seconds)
        if len(config.parts) == self.segments:
            self._queue_average(config)

    def _queue_average(self, config: Config) -> None:
        """Queue the averaging of a config's states on the segment of the epoch's last stop."""
        config.visiting = True
        epoch = self.whole_epochs(config) + 1
        route = routes.route(self.seed, config.epochs_before + epoch, config.key, self.segments)
        self._evaluations[route[-1]].insert(0, Unit(AVERAGE, config.mst_key, epoch, route[-1]))

    def averaged(self, unit: Unit, loss: float | None) -> None:
        """Record that the states of an epoch were averaged."""
        self._under_way.pop(unit.segment)
        config = self.configs[unit.mst_key]
        config.visiting = False
        config.parts.clear()
        config.step += self.segments
        config.loss = loss
        if unit.epoch % self.frequency == 0:
            self._queue_evaluation(config, unit.epoch)
        self.settle(config.mst_key)

    def settle(self, mst_key: int) -> None:
        """Queue the evaluation of a config's last whole epoch if the config has no visits left."""
        config = self.configs[mst_key]
        epoch = self.whole_epochs(config)
        stopped = config.stop_at is not None and config.step >= config.stop_at
        ended = stopped or config.step == config.until * self.segments
        if ended and not config.visiting and epoch > self._first_epoch(config):
            self._queue_evaluation(config, epoch)

    def _queue_evaluation(self, config: Config, epoch: int) -> None:
        place = config.mst_key, epoch
        # A config that went back to an earlier step may have been evaluated there before.
        if config.is_out or place in self.evaluated or place in self.measured:
            return
        if config.home is not None and epoch == self.whole_epochs(config):
            self._awaited[config.mst_key] = epoch
            self._bundles.reopen(config.mst_key)
            return
        self.measured[place] = 0
        for segment in range(self.segments):
            self._evaluations[segment].append(Unit(EVALUATE, config.mst_key, epoch, segment))

    def evaluated_on(self, unit: Unit, seconds: float) -> None:
        """Record that a segment has evaluated configs; queue the merge when all segments have."""
        self._under_way.pop(unit.segment)
        config = self.configs[unit.mst_key]
        first = self._first_at(unit, config)
        units = sum(self.configs[key].visit_units for key in unit.keys)
        self.evaluation_costs.record(config.kind, units, seconds, first=first)
        merges: list[Unit] = []
        for key in unit.keys:
            place = key, unit.epoch
            if place in self.measured:
                self.measured[place] += 1
                if self.measured[place] == self.segments:
                    merges.append(Unit(MERGE, key, unit.epoch, unit.segment))
        self._evaluations[unit.segment][:0] = merges

    def merged(self, unit: Unit) -> None:
        self._under_way.pop(unit.segment)
        for place in ((key, unit.epoch) for key in unit.keys):
            if self.measured.pop(place, None) is not None:
                self.evaluated.add(place)

    def note_value(self, mst_key: int, epoch: int, value: float | None) -> None:
        """Record an epoch's metric if it is the config's best: the lowest, among equals the earliest."""
        config = self.configs[mst_key]
        if value is not None and (config.best is None or (value, epoch) < config.best):
            config.best = (value, epoch)

    def again(self, unit: Unit) -> None:
        """Queue a lost unit again, as smaller units: a hopping config alone, a bundle of groups in halves."""
        self._under_way.pop(unit.segment)
        if unit.kind in (VISIT, PART, BUNDLE):
            for config in map(self.configs.__getitem__, unit.members):
                config.at_most = 1 if config.home is None else max(1, len(unit.members) // 2)
            self._stands_still(unit)
            return
        alone = replace(unit, members=(), apart=unit.apart or len(unit.keys) > 1)
        each = [replace(alone, mst_key=key) for key in unit.keys if not self.configs[key].is_out]
        self._evaluations[unit.segment][:0] = each

    def failed(self, unit: Unit, reason: str) -> None:
        """Exclude the configs of a failed unit from the rest of the run; other configs go on."""
        self._under_way.pop(unit.segment, None)
        self._stands_still(unit)
        for key in unit.keys:
            self.configs[key].failure = reason
            self._measure_no_more(key)

    def left(self, unit: Unit) -> None:
        """Record the end of a unit whose config failed elsewhere or was deleted in the meantime."""
        self._under_way.pop(unit.segment, None)
        if unit.kind in (VISIT, PART, AVERAGE, BUNDLE):
            self._stands_still(unit)

    def _stands_still(self, unit: Unit) -> None:
        """Record that the unit's segment no longer works on the unit's configs."""
        for config in map(self.configs.__getitem__, unit.keys):
            config.busy.discard(unit.segment)
            config.visiting = config.amid_epoch

    def _measure_no_more(self, mst_key: int) -> None:
        self._awaited.pop(mst_key, None)
        for queue in self._evaluations.values():
            queue[:] = [waiting for waiting in queue if waiting.mst_key != mst_key]
        for key in [key for key in self.measured if key[0] == mst_key]:
            del self.measured[key]

    def add(self, config: Config) -> None:
        """Add a config while the run goes on."""
        self.configs[config.mst_key] = config
        if config.home is None:
            self._hopping.append(config)
        else:
            self._bundles.add(config)

    def begun_step(self, mst_key: int) -> int:
        """Return the step that a config will have once its visit under way, if there is one, is committed."""
        config = self.configs[mst_key]
        if config.home is not None and config.visiting:
            return self._under_way[config.home].until * self.segments
        at_once = self.segments if self.averages(config) else 1
        return config.step + at_once * config.visiting

    def set_until(self, mst_key: int, epochs: int) -> None:
        """Set the epoch until which a config trains."""
        self.configs[mst_key].until = epochs
        self._bundles.reopen(mst_key)

    def stop(self, mst_key: int, step: int) -> None:
        """Stop a config after this step; its result so far stays."""
        self.configs[mst_key].stop_at = step

    def go_on(self, mst_key: int) -> None:
        self.configs[mst_key].stop_at = None
        self._bundles.reopen(mst_key)

    def delete(self, mst_key: int) -> None:
        """Exclude a deleted config from the rest of the run."""
        self.configs[mst_key].deleted = True
        self._measure_no_more(mst_key)

    def under_way(self, segment: int) -> Unit:
        return self._under_way[segment]

    def needed_steps(self, mst_keys: Iterable[int]) -> dict[int, list[int]]:
        return keeping.needed_steps(self, mst_keys, self.measured)

    def step_before(self, step: int) -> int:
        """Return the earlier step whose state is needed to compute `step` again."""
        return routes.step_before(step, self.segments, self.average_from)

    def epoch_done_by_all(self) -> int:
        """Return the number of epochs that all training configs have completed and, where due, evaluated."""
        left = [self.whole_epochs(c) for c in self.configs.values() if not c.over]
        unmeasured = [epoch - 1 for epoch in (*(e for _, e in self.measured), *self._awaited.values())]
        return min([*left, *unmeasured], default=self.epochs)
