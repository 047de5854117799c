"""The progress lines of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.logical.metrics import better, deciding
from cerebro_plpy.planner.plan import MERGE, Plan, Unit

# A line at the end of each epoch, and one now and then while an epoch is long.
QUIET_SECONDS = 10.0


class Report:
    """Tells the caller what has happened, an epoch at a time."""

    def __init__(self, db: Database, run_id: int, plan: Plan, validated: bool, quiet: bool = False) -> None:
        self._db = db
        self._plan = plan
        self._dataset = "validation" if validated else "training"
        self._quiet = quiet
        self._begun = self._last_line = time.monotonic()
        self._epoch = 0
        # Of each config, how good it was at its best, by which metric, and the metric's value.
        self._best: dict[int, tuple[float, str, float]] = {}
        # Where a search has yet to decide which configs there are, an epoch of all of them says nothing.
        self._search = not plan.configs
        configs, epochs = len(plan.configs), _count(plan.epochs, "epoch")
        where = f"on {_count(plan.segments, 'segment')}"
        if self._search:
            self._say(f"run {run_id}: a search {where}, at most {epochs} for a config")
        else:
            visits = _count(plan.visits_total, "visit")
            self._say(f"run {run_id}: {_count(configs, 'config')} {where}, {epochs}, {visits}")

    def take(self, unit: Unit, result: Mapping[str, Any]) -> None:
        """A unit has ended."""
        if "failure" in result:
            self._db.warning(f"config {unit.mst_key} failed and is left out: {result['failure']}")
            self._best.pop(unit.mst_key, None)
        if unit.kind == MERGE:
            self._note_metrics(unit, result)
        done = self._plan.epoch_done_by_all()
        if done > self._epoch and self._plan.epochs and not self._search:
            self._epoch = done
            self._say(f"epoch {done} of {self._plan.epochs} done after {self._elapsed()}{self._outlook()}")
        elif time.monotonic() - self._last_line > QUIET_SECONDS:
            self._say(f"{self._plan.visits_done} of {self._plan.visits_total} visits{self._outlook()}")

    def finish(self) -> None:
        failed = sum(c.failure is not None for c in self._plan.configs.values())
        lost = f", {_count(failed, 'config')} failed" if failed else ""
        self._say(f"done in {self._elapsed()}{lost}{self._best_so_far()}")

    def _note_metrics(self, unit: Unit, result: Mapping[str, Any]) -> None:
        values = result.get(self._dataset) or {}
        name = deciding(list(values))
        if name is None or values[name] is None:
            return
        score = values[name] if better(name) == "max" else -values[name]
        if unit.mst_key not in self._best or score > self._best[unit.mst_key][0]:
            self._best[unit.mst_key] = (score, name, values[name])

    def _outlook(self) -> str:
        left = self._plan.seconds_left()
        return (f", about {left:.0f} s left" if left >= 1 else "") + self._best_so_far()

    def _best_so_far(self) -> str:
        if not self._best:
            return ""
        key = max(self._best, key=lambda key: self._best[key][0])
        _, name, value = self._best[key]
        return f"; best {self._dataset} {name} {value:.4f} (mst_key {key})"

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._begun:.1f} s"

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        if not self._quiet:
            self._db.notice(line)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
