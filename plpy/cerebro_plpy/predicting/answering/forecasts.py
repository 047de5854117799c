"""cerebro.forecast: continue the series of a source from their newest rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, UNDEFINED_TABLE, CerebroError
from cerebro_plpy.forecasting.backtest import LEVELS
from cerebro_plpy.forecasting.baselines import BASELINES, NAIVE, SEASONAL_NAIVE
from cerebro_plpy.forecasting.document import Forecast, read_forecast
from cerebro_plpy.forecasting.series import SHORT, UNKNOWN, Series, lay_out
from cerebro_plpy.forecasting.windows import ColumnScale, Windowed, WindowShape, cut, scale_ahead
from cerebro_plpy.predicting import models as trained_models
from cerebro_plpy.predicting import trained
from cerebro_plpy.predicting.answering import of_packed, readings
from cerebro_plpy.store import interrupts, names
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.related import series as store

ForecastRow = tuple[str, str | None, float | None, float | None, float | None, str]


@dataclass(frozen=True)
class Band:
    """The forecast of a series: values with their bounds, which are NaN where nobody knows them."""

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    status: str


def forecast(db: Database, name: str | None, horizon: int | None, level: float | None) -> list[ForecastRow]:
    """Return the forecasts of all series, a row for each step; of a series without one, its status."""
    if name is None or not name.strip():
        raise CerebroError("name is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    number = _level(level)
    found = _find(db, name)
    steps = found.shape.horizon if horizon is None else horizon
    if not 1 <= steps <= found.shape.horizon:
        raise CerebroError(
            f"horizon is {steps}, and {name} was trained for {found.shape.horizon}",
            hint=f"Give 1 to {found.shape.horizon}, or train another forecast.",
        )
    source = names.resolve_table(db, found.source, "source table")
    ahead = [one.column for one in found.ahead]
    columns = readings.find_columns(db, source, found.time, found.value, keys=found.series, ahead=ahead)
    laid = [lay_out(one, found.step) for one in readings.read_series(db, source, columns, found.zone)]
    laid = [_without_columns(one, found, steps) for one in laid]
    bands = _answer(db, name, found, [one for one in laid if one.is_answered], number)
    return list(_rows(db, found, laid, bands, steps))


def _without_columns(series: Series, found: Forecast, steps: int) -> Series:
    """Return a series; without a forecast if a net needs columns that are not known for so many steps."""
    short = len(series.values) < found.shape.window
    if found.mst_key is None or not found.ahead or not series.is_answered or short:
        return series
    until = len(series.values) + steps
    coming = series.ahead[:, len(series.values) : until]
    known = series.ahead.shape[1] >= until and bool(np.isfinite(coming).all())
    return series if known else replace(series, status=UNKNOWN)


def _level(level: float | None) -> int:
    """Return the place of a level among those whose intervals are kept."""
    if level is None:
        raise CerebroError("level is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not LEVELS[0] <= level <= LEVELS[-1]:
        raise CerebroError(
            f"level is {level:g}",
            detail=f"It must be from {LEVELS[0]:g} to {LEVELS[-1]:g}.",
            hint="0.9 is usual.",
        )
    return next(place for place, kept in enumerate(LEVELS) if kept >= level - 1e-9)


def _find(db: Database, name: str) -> Forecast:
    table = names.find_table(db, names.with_suffix(name, store.SUFFIX), "forecast")
    if table is None:
        raise CerebroError(
            f"forecast {name} does not exist",
            detail=f"There is no table {names.with_suffix(name, store.SUFFIX)}.",
            hint="cerebro.train_forecast makes one.",
            sqlstate=UNDEFINED_TABLE,
        )
    _check_tables(db, [table])
    found = read_forecast(store.read_document(db, table), table.quoted)
    if not store.is_own(db, table):
        _check_tables(db, [names.resolve_table(db, found.source, "source table")])
    return found


def _check_tables(db: Database, tables: Sequence[Table]) -> None:
    trained.check_readable(
        db,
        tables,
        instead="Train a forecast of your own on the view.",
        why="A forecast reads the table that describes it, its models and its source as whoever calls.",
    )


def _answer(
    db: Database, name: str, found: Forecast, series: Sequence[Series], level: int
) -> dict[str, Band]:
    """Return the forecast of each series; short ones get the last season or value, without bounds."""
    shape = found.shape
    long = [one for one in series if len(one.values) >= shape.window]
    bands = {one.key: _short_band(one, found) for one in series if len(one.values) < shape.window}
    if long:
        rows = cut(long, [[len(one.values)] for one in long], shape)
        answers = answer_windows(
            db, rows, shape, name=name, answer=found.answer, mst_key=found.mst_key, ahead=found.ahead
        )
        flat = np.ptp(rows.known, axis=1, keepdims=True) == 0
        answers = np.where(flat, rows.centers, answers)
        reach = np.where(flat, 0.0, rows.scales) * found.radii[level]
        for place, one in enumerate(long):
            values = answers[place]
            bands[one.key] = Band(values, values - reach[place], values + reach[place], one.status)
    return bands


def answer_windows(
    db: Database,
    rows: Windowed,
    shape: WindowShape,
    *,
    name: str,
    answer: str,
    mst_key: int | None,
    ahead: Sequence[ColumnScale],
) -> np.ndarray:
    """Return what a config, or without one a baseline, answers for these windows."""
    if mst_key is None:
        return BASELINES[answer](rows, shape.horizon, shape.season)
    model = trained_models.trained(db, trained.find_model(db, name, mst_key))
    inputs = [rows.inputs.astype(np.float32)]
    if ahead:
        inputs.append(scale_ahead(rows, ahead).astype(np.float32))
    (found,) = of_packed.answers(db, model, inputs, partial(interrupts.tick, db))
    return rows.in_unit(found.reshape(len(found), -1).astype(np.float64))


def _short_band(one: Series, found: Forecast) -> Band:
    season = found.shape.season if len(one.values) >= found.shape.season else 1
    window = min(len(one.values), found.shape.window)
    rows = Windowed(
        series=np.zeros(1, np.int64),
        origins=np.array([len(one.values)]),
        known=one.values[None, -window:],
        slopes=np.zeros(1),
        followed=np.empty((1, 0)),
        ahead=np.empty((1, 0, 0)),
    )
    values = BASELINES[SEASONAL_NAIVE if season > 1 else NAIVE](rows, found.shape.horizon, season)[0]
    unknown = np.full(len(values), np.nan)
    return Band(values, unknown, unknown, SHORT)


def _rows(
    db: Database, found: Forecast, laid: Sequence[Series], bands: dict[str, Band], steps: int
) -> Iterator[ForecastRow]:
    """Yield the rows: the stamps of all series go to the server at once."""
    times = {
        one.key: found.step.after(one.stamps, len(one.values) - 1 + np.arange(1, steps + 1))
        for one in laid
        if one.is_answered
    }
    distinct = np.unique(np.concatenate([np.empty(0), *times.values()])).tolist()
    shown = store.show_stamps(db, distinct, by_wall=found.step.by_wall, zone=found.zone)
    stamps = dict(zip(distinct, shown, strict=True))
    for one in laid:
        if not one.is_answered:
            yield one.key, None, None, None, None, one.status
            continue
        band = bands[one.key]
        for place, time in enumerate(times[one.key].tolist()):
            bounds = (band.values[place], band.lower[place], band.upper[place])
            value, lower, upper = (float(bound) if np.isfinite(bound) else None for bound in bounds)
            yield one.key, stamps[time], value, lower, upper, band.status
