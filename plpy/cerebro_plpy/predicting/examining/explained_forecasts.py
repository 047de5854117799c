"""cerebro.explain_forecast: returns what a series' newest values and its columns add to a net's forecast.

Together they add up to the difference between this forecast and the forecast for a still series: a series
that always had the same last value, and whose columns and calendar are at their averages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.inside import scores
from cerebro_plpy.engine.inside.slopes import BoundSlopes, slopes
from cerebro_plpy.engine.models.inference import inference
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.explaining.path import attribute
from cerebro_plpy.forecasting.parts import StepParts
from cerebro_plpy.forecasting.series import Series
from cerebro_plpy.forecasting.windows import cut
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.answering import forecasts
from cerebro_plpy.predicting.answering.forecasts import HeldForecast
from cerebro_plpy.predicting.examining.explained import check_top
from cerebro_plpy.store import interrupts


class ExplainedStep(NamedTuple):
    """One value or column, and what it adds to the net's forecast of one step of a series."""

    series: str
    time: str | None
    value: float
    baseline: float
    column: str
    shown: str | None
    contribution: float
    error: float
    number: int | None


@dataclass(frozen=True)
class ForecastExplainer:
    """The slopes of a forecast's net, and the inputs of a series that has stayed at its last value."""

    held: HeldForecast
    slopes: BoundSlopes
    still: list[np.ndarray]
    most: int | None

    def explain(
        self, series: Series, times: Sequence[float], stamps: Mapping[float, str]
    ) -> Iterator[ExplainedStep]:
        """Yield what values and columns add to each forecast step of a series, the greatest part first."""
        found = self.held.forecast
        window = cut([series], [[len(series.values)]], found.shape)
        inputs = found.inputs.make([series], window)
        end = self.slopes.enter([one.astype(np.float32) for one in inputs.values()])
        center, scale = float(window.centers[0, 0]), float(window.scales[0, 0])
        names = StepParts(found.time, found.value, found.inputs)
        for step, time in enumerate(times):
            at = partial(self.slopes.at, given=np.eye(self.slopes.width, dtype=np.float32)[step])
            told = attribute(at, self.still, end, self.slopes.rows)
            added = dict(zip(inputs, self.slopes.leave(told.parts), strict=True))
            number = round(time) if found.step.is_number else None
            stamp = stamps.get(time)
            parts = names.name(series, window, added, step, stamp or str(number))
            for part in sorted(parts, key=lambda one: -abs(one.added))[: self.most]:
                yield ExplainedStep(
                    series=series.key,
                    time=stamp,
                    value=center + scale * told.score,
                    baseline=center + scale * told.baseline,
                    column=part.column,
                    shown=part.shown,
                    contribution=scale * part.added,
                    error=told.error,
                    number=number,
                )


def explain_forecast(
    db: Database, name: str | None, which: str | None, horizon: int | None, most: int | None
) -> list[ExplainedStep]:
    """Return what values and columns add to the forecasts of series.

    `which` selects series by the values of their columns, for example `{"shop": "shop 1"}`.
    """
    check_top(most)
    wanted = _read_wanted(which)
    held, steps = forecasts.find_forecast(db, name, horizon)
    found = held.forecast
    if found.mst_key is None:
        raise CerebroError(
            f"{name} answers with {found.answer}, which has no net to explain",
            hint="Each baseline follows from the newest values by a rule that the guide to forecasts gives.",
            sqlstate=NOT_SUPPORTED,
        )
    read = forecasts.read_answerable(db, found, steps)
    long = [one for one in read.laid if one.is_answered and len(one.values) >= found.shape.window]
    chosen = [one for one in read.laid if _has(one, wanted)]
    if not chosen:
        raise CerebroError(f"no series has {which}", hint=_propose(found.series, read.laid))
    moving = [one for one in long if _has(one, wanted) and np.ptp(one.values[-found.shape.window :]) > 0]
    _tell(db, held, len(chosen) - len(moving), len(chosen))
    if not moving:
        return []
    explainer = _make(db, held, long, most)
    times = {one.key: forecasts.find_times(found, one, steps, 0) for one in moving}
    stamps = forecasts.show_times(db, found, times, has_zone=read.has_zone)
    parts = list[ExplainedStep]()
    for one in moving:
        parts += explainer.explain(one, times[one.key].tolist(), stamps)
        interrupts.tick(db)
    return parts


def _read_wanted(which: str | None) -> Mapping[str, Any]:
    found = json.loads(which or "{}")
    if not isinstance(found, dict):
        raise CerebroError(
            f"which is {which}, and must name columns of the series",
            hint="""Write {"shop": "shop 1"}.""",
        )
    return found


def _has(series: Series, wanted: Mapping[str, Any]) -> bool:
    own = json.loads(series.key)
    return all(name in own and own[name] == value for name, value in wanted.items())


def _propose(columns: Sequence[str], laid: Sequence[Series]) -> str | None:
    if not columns:
        return "All rows are one series; leave it out."
    return f"The first series is {laid[0].key}." if laid else None


def _tell(db: Database, held: HeldForecast, without: int, count: int) -> None:
    """Send a NOTICE if the forecast also uses baselines, which are not explained.

    Send another one if `without`, the number of series that are left out, is not 0.
    """
    found = held.forecast
    if found.baselines:
        db.notice(f"{held.name} answers with {found.answer}; explained is what its net forecasts")
    if without:
        db.notice(
            f"{without} of {count} series are left out: the net does not answer them, or they have not moved"
        )


def _make(db: Database, held: HeldForecast, long: Sequence[Series], most: int | None) -> ForecastExplainer:
    found = held.forecast
    model = forecasts.find_net(db, held.name, None if held.is_registered else found.mst_key)
    still = found.inputs.make_still(long, found.shape.window, found.shape.horizon)
    described = models.describe_by_engine(db, model, [one.shape[1:] for one in still.values()])
    net = slopes(described, scores.chosen).bound(inference(described).load(model.weights()))
    start = net.enter([one.astype(np.float32) for one in still.values()])
    return ForecastExplainer(held, net, start, most)
