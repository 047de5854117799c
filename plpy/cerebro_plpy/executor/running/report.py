"""Report the progress of a run to the caller, one notice after another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.logical.metrics import badness, deciding
from cerebro_plpy.madlib.params import CompileParams
from cerebro_plpy.planner.estimating.costs import RunPace
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import BUNDLE, EVALUATE, MERGE, PART, VISIT, Config, Unit
from cerebro_plpy.store.runs.decisions import Entry

# The most notices about epochs; and after how long without a notice one is sent, which doubles each time.
LINES = 10
QUIET_SECONDS = 10.0
MOST_QUIET_SECONDS = 600.0
# The most failed configs that are named at the end of a run.
MOST_REASONS = 3
# A config's score: badness, loss, key, metric and value; and the metrics by config and epoch.
_Score = tuple[float, float, int, str, float]
ByEpoch = Mapping[tuple[int, int], Mapping[str, float | None]]


class Report:
    """The progress report of a run: notices to its caller, mostly one for each epoch."""

    def __init__(
        self,
        db: Database,
        run_id: int,
        plan: Plan,
        dataset: str,
        params: Callable[[int], CompileParams],
        measured: ByEpoch,
        stops_early: bool = False,
        quiet: bool = False,
    ) -> None:
        self._db = db
        self._run_id = run_id
        self._plan = plan
        self._dataset = dataset
        self._params = params
        # The values that were measured, by config, then by epoch.
        self._measured: dict[int, dict[int, Mapping[str, float | None]]] = {}
        for (mst_key, epoch), values in measured.items():
            self._measured.setdefault(mst_key, {})[epoch] = values
        self._stops_early = stops_early
        self._quiet = quiet
        self._begun = self._last_line = time.monotonic()
        self._patience = QUIET_SECONDS
        self._epoch = 0
        self._pace = RunPace()
        # A search has yet to decide which configs there are, so there are no epochs of all configs.
        self._search = not plan.configs
        self._declined: set[tuple[object, str]] = set()
        configs, epochs = _configs(plan), _count(plan.epochs, "epoch")
        where = f"on {_count(plan.segments, 'segment')}"
        if self._search:
            self._say(f"run {run_id}: a search {where}, at most {epochs} for a config")
        else:
            self._say(f"run {run_id}: {configs} {where}, {self._extent(epochs)}")

    def _extent(self, epochs: str) -> str:
        """Return a text with `epochs` and the number of visits; both are maxima if configs may be stopped."""
        plan = self._plan
        most = sum(plan.epochs * plan.segments - config.first_step for config in plan.configs.values())
        if self._stops_early:
            return f"at most {epochs} for a config, at most {_count(most, 'visit')}"
        return f"{epochs}, {_count(plan.visits_total, 'visit')}"

    def take(self, unit: Unit, result: Mapping[str, Any]) -> None:
        """Record the result of a unit of work; send a notice if an epoch is done or some time has passed."""
        if "failure" in result:
            name = self._plan.configs[unit.mst_key].name
            self._db.warning(f"{name} failed and is left out: {result['failure']}")
            if unit.kind == BUNDLE:
                # All members of a bundle may fail, and each would go through all configs below.
                return
        if result.get("declined"):
            self._tell_declined(self._plan.configs[unit.mst_key], result["declined"])
        if unit.kind == MERGE and self._dataset in result:
            self._measured.setdefault(unit.mst_key, {})[unit.epoch] = result[self._dataset]
        if unit.kind in (VISIT, PART, EVALUATE, BUNDLE) and "seconds" in result:
            now = time.monotonic()
            self._pace.record(now - result["seconds"], now)
        plan, done = self._plan, self._plan.epoch_done_by_all()
        step = -(-plan.epochs // LINES)
        if (
            not self._search
            and plan.epochs
            and (done // step > self._epoch // step or done == plan.epochs > self._epoch)
        ):
            self._epoch = done
            self._say(f"epoch {done} of {plan.epochs} done after {self._elapsed()}{self._outlook()}")
        elif time.monotonic() - self._last_line > self._patience:
            self._patience = min(2 * self._patience, MOST_QUIET_SECONDS)
            self._say(f"{self._visits()} after {self._elapsed()}{self._outlook()}")

    def _visits(self) -> str:
        """Return the number of visits done as text; without a search, also the total number of visits."""
        done = self._plan.visits_done
        return _count(done, "visit") if self._search else f"{done} of {self._plan.visits_total} visits"

    def _tell_declined(self, config: Config, why: str) -> None:
        """Send a notice that configs of this kind do not train as planned, once for each kind and `why`."""
        if (config.kind, why) not in self._declined:
            self._declined.add((config.kind, why))
            self._say(f"config {config.key} and others of its kind train {why}")

    def finish(self) -> None:
        failed = sum(c.failure is not None for c in self._plan.configs.values())
        lost = f", {_count(failed, 'config')} failed" if failed else ""
        starting = self._begun - self._db.called_at
        # A start of less than a second is not mentioned.
        started = f" ({duration(starting)} of them to start)" if starting >= 1 else ""
        self._say(f"done in {self._elapsed()}{started}{lost}{self._best_so_far()}")
        self._tell_failed()

    def _tell_failed(self) -> None:
        """List the failed configs in one last warning, since earlier warnings of them may be far above."""
        failed = [config for config in self._plan.configs.values() if config.failure is not None]
        if not failed:
            return
        reasons = "; ".join(f"{config.name}: {config.failure}" for config in failed[:MOST_REASONS])
        more = f"; and {len(failed) - MOST_REASONS} more" if len(failed) > MOST_REASONS else ""
        self._db.warning(
            f"no result for {_count(len(failed), 'config')} of {len(self._plan.configs)}, which failed:"
            f" {reasons}{more}. SELECT mst_key, failure FROM cerebro.leaderboard"
            f" WHERE run_id = {self._run_id} AND failure IS NOT NULL shows all"
        )

    def _outlook(self) -> str:
        left = None if self._search else self._plan.seconds_left()
        if left is None:
            return self._best_so_far()
        left *= self._pace.factor(min(self._plan.segments, len(self._plan.configs)))
        return (f", about {duration(left)} left" if left >= 1 else "") + self._best_so_far()

    def _best_so_far(self) -> str:
        """Return the best config so far, by the rule of the leaderboard, as text at the end of a notice."""
        standings = list(self._standings())
        if not standings:
            return ""
        *_, key, name, value = min(standings)
        return f"; best {self._dataset} {name} {value:.4f} (mst_key {key})"

    def _standings(self) -> Iterator[_Score]:
        """Yield the score of each config that has one.

        In cross-validation, yield the mean score of a config's folds, once all its folds have a score.
        """
        folds: dict[int, list[_Score | None]] = {}
        for config in self._plan.configs.values():
            if config.fold is not None:
                folds.setdefault(config.key, []).append(self._standing(config.mst_key))
        if not folds:
            yield from filter(None, map(self._standing, self._plan.configs))
        for key, all_folds in folds.items():
            found = [one for one in all_folds if one is not None]
            if len(found) == len(all_folds):
                bad, loss, _, name, value = (list(column) for column in zip(*found, strict=True))
                yield fmean(bad), fmean(loss), key, name[0], fmean(value)

    def _standing(self, mst_key: int) -> _Score | None:
        """Return the score of the state that a config would leave if the run ended now, or None.

        Lower scores are better. Equal scores are ranked by loss, then by key, as in cerebro.leaderboard.
        """
        config, measured = self._plan.configs[mst_key], self._measured.get(mst_key)
        if not measured or config.failure is not None or config.deleted:
            return None
        kept, even = self._plan.best_epoch(config), self._plan.even_epoch()
        if even is not None:
            measured = {epoch: values for epoch, values in measured.items() if epoch <= even}
            if not measured:
                return None
        values = measured[kept if kept in measured else max(measured)]
        name = deciding(list(values))
        if name is None or (value := values[name]) is None:
            return None
        bad, loss = badness(name, value, self._params(mst_key)), values.get("loss")
        if bad is None or (loss is not None and not math.isfinite(loss)):
            return None
        return bad, math.inf if loss is None else loss, mst_key, name, value

    def _elapsed(self) -> str:
        return duration(time.monotonic() - self._db.called_at)

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        if not self._quiet:
            self._db.notice(line)


def duration(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes or hours."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _configs(plan: Plan) -> str:
    """Return the number of configs as text; a config counts once for all its folds or groups."""
    configs = _count(len({config.key for config in plan.configs.values()}), "config")
    groups = len({config.group for config in plan.configs.values() if config.group is not None})
    if groups:
        return f"{configs} for each of {_count(groups, 'group')}"
    folds = {config.fold for config in plan.configs.values() if config.fold is not None}
    return f"{configs}, cross-validated in {len(folds)} folds," if folds else configs


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tell_decision(entry: Entry) -> str:
    """Return the notice that reports a user's decision to the caller of the run."""
    whom = "the run" if entry.mst_key is None else f"config {entry.mst_key}"
    return f"{entry.decision} {whom}: asked for by {entry.role}"
