"""cerebro.importance: returns how much worse a model answers without the information of a column.

A column is mixed: each row gets the value of another row. The importance of the column is the error with the
mixed column, less the error without mixing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.logical.options import Validator, integer, parse_options
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.labeled import Judge, LabeledRows, find_judge
from cerebro_plpy.predicting.examining.scoring import JackknifedError
from cerebro_plpy.predicting.holders import RegisteredVersion
from cerebro_plpy.store.models import retraining
from cerebro_plpy.threads import Threads, Tick

REPEATS, ROWS, SEED = 5, 5_000, 1
# The inputs of all threads together are no larger.
_MOST_BYTES = 1 << 30
# A longer wait is announced.
_LONG_SECONDS = 3
# column_name, importance, stddev, low, high
Importance = tuple[str, float, float, float, float]
ColumnPlaces = Sequence[tuple[int, slice]]


def _together(key: str, value: object) -> list[list[str]]:
    lists = value if isinstance(value, list) else []
    if not lists or not all(isinstance(one, list) and len(one) > 1 for one in lists):
        raise CerebroError(
            f"option {key} must be a list of lists of columns", hint='Write {"together": [["city", "zip"]]}.'
        )
    return [[str(name) for name in one] for one in lists]


def _metric(key: str, value: object) -> str:
    return str(value)


OPTIONS: Mapping[str, Validator] = {
    "repeats": integer(1, 1000),
    "rows": integer(2, 1_000_000),
    "seed": integer(0, 2**31 - 1),
    "together": _together,
    "metric": _metric,
}


@dataclass(frozen=True)
class Mixing:
    """The rows whose columns are mixed, how often each column is mixed, and the metric."""

    judge: Judge
    rows: LabeledRows
    metric: str
    repeats: int
    seed: int

    def measure(self, inputs: Sequence[np.ndarray]) -> JackknifedError:
        """Return the error of the model's answers to these inputs."""
        return scoring.jackknife(self.judge.answer(inputs, self.rows.groups), self.rows.truth, self.metric)

    def mix(self, before: JackknifedError, name: str, places: ColumnPlaces) -> Importance:
        """Return how much greater the error is with the column `name` mixed: mean, spread and interval.

        `before` is the error without mixing. The mean and the spread are of the column's several mixings. The
        interval allows for chance in the choice of the rows and in the mixing.
        """
        gains: list[tuple[float, float]] = []
        for number in range(self.repeats):
            mixed = mix_column(self.rows.inputs, places, self._order(name, number))
            gains.append(scoring.gain(before, self.measure(mixed)))
        errors, chances = np.array(gains).T
        spread = float(errors.std(ddof=1)) if len(errors) > 1 else 0.0
        mean, of_mixing = float(errors.mean()), scoring.SURE * spread / np.sqrt(len(errors))
        chance = float(np.hypot(chances.mean(), of_mixing))
        return name, mean, spread, mean - chance, mean + chance

    def mix_all(self, before: JackknifedError, columns: Mapping[str, ColumnPlaces]) -> list[Importance]:
        """Return the importance of each column. Threads mix several columns at a time."""
        nbytes = sum(array.nbytes for array in self.rows.inputs)
        count = min(models.count_sessions(self.judge.db), len(columns), _MOST_BYTES // max(1, nbytes))
        # The models of groups are read one after the other, which only the session's own thread may do.
        count = count if self.judge.grouped_by is None else 1
        calls = [partial(self._mix_beside, before, name, places) for name, places in columns.items()]
        return Threads(count, self.judge.tick).run(calls)

    def _mix_beside(self, before: JackknifedError, name: str, places: ColumnPlaces, tick: Tick) -> Importance:
        return replace(self, judge=replace(self.judge, tick=tick)).mix(before, name, places)

    def _order(self, name: str, number: int) -> np.ndarray:
        return seeding.permutation(len(self.rows.truth), self.seed, "importance", name, number)


def mix_column(inputs: Sequence[np.ndarray], places: ColumnPlaces, order: np.ndarray) -> list[np.ndarray]:
    """Return the inputs with their numbers at `places` mixed: row n gets those of row `order[n]`."""
    arrays = list(inputs)
    for number, part in places:
        mixed = arrays[number].copy()
        if part == slice(None):
            mixed[:] = mixed[order]
        else:
            mixed[:, part] = mixed[order, part]
        arrays[number] = mixed
    return arrays


def find_importance(
    db: Database, model: str | None, source: str | None, mst_key: int | None, options: str | None
) -> list[Importance]:
    """Return the importance of each column, the most important first, in the unit of the metric."""
    given = parse_options(options, OPTIONS)
    judge = find_judge(db, model, source, mst_key, takes_groups=True)
    metric = scoring.check_metric(given.get("metric") or _find_metric(db, judge), judge.is_classes)
    columns = _columns(judge, given.get("together", []))
    seed = given.get("seed", SEED)
    rows = _join(list(judge.read(given.get("rows", ROWS), seed)))
    scoring.check_rows(metric, rows.truth.sum(axis=0), judge.table.quoted)
    mixing = Mixing(judge, rows, metric, given.get("repeats", REPEATS), seed)
    began = time.monotonic()
    before = mixing.measure(rows.inputs)
    db.notice(f"{metric} {scoring.shown(metric, before.whole):.4g} on {len(rows.truth)} rows as they are")
    seconds = (time.monotonic() - began) * len(columns) * mixing.repeats / models.count_sessions(db)
    if seconds > _LONG_SECONDS:
        db.notice(
            f"mixing {len(columns)} columns {mixing.repeats} times takes some {seconds:.0f} s;"
            " options repeats and rows shorten it"
        )
    found = mixing.mix_all(before, columns)
    return sorted(found, key=lambda one: (-one[1], one[0]))


def _find_metric(db: Database, judge: Judge) -> str | None:
    """Return the metric by which cerebro.train chose the model; None if that call named no metric."""
    holder = judge.holder
    if isinstance(holder, RegisteredVersion):
        recipe = json.loads(holder.read(db).lineage).get(retraining.RECIPE)
    else:
        recipe = retraining.find_recipe(db, holder.summary(db))
    # Somebody else may have written the recipe, so it may hold anything.
    options = recipe.get("options") if isinstance(recipe, dict) else None
    metric = scoring.find_deciding(options) if isinstance(options, dict) else None
    return metric if metric in scoring.of_task(judge.is_classes) else None


def _columns(judge: Judge, together: Sequence[Sequence[str]]) -> dict[str, ColumnPlaces]:
    """Return the places of each column's numbers in the inputs.

    Columns that are mixed together are one entry.
    """
    places = judge.find_places()
    for name in [name for one in together for name in one]:
        if name not in places:
            match = nearest(name, places)
            raise CerebroError(
                f'"{name}" is not an input of the model',
                detail=f"Its inputs are {', '.join(places)}.",
                hint=f'Did you mean "{match}"?' if match else None,
                sqlstate=UNDEFINED_COLUMN,
            )
    joint = {name for one in together for name in one}
    alone = {name: own for name, own in places.items() if name not in joint}
    return {**alone, **{", ".join(one): [part for name in one for part in places[name]] for one in together}}


def _join(parts: Sequence[LabeledRows]) -> LabeledRows:
    arrays: list[Any] = [np.concatenate(same) for same in zip(*(part.inputs for part in parts), strict=True)]
    groups = [group for part in parts for group in part.groups]
    return LabeledRows(arrays, np.concatenate([part.truth for part in parts]), [], [], groups)
