"""cerebro.forecast: forecasts each series of a source table from the newest rows of the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, UNDEFINED_TABLE, WRONG_OBJECT, WRONG_STATE, CerebroError
from cerebro_plpy.forecasting.backtest import LEVELS
from cerebro_plpy.forecasting.baselines import BASELINES, NAIVE, SEASONAL_NAIVE
from cerebro_plpy.forecasting.document import Forecast, read_forecast
from cerebro_plpy.forecasting.inputs import InputMaker
from cerebro_plpy.forecasting.series import FILLED, SHORT, UNKNOWN, Series, lay_out
from cerebro_plpy.forecasting.windows import Windowed, WindowShape, cut, look_back
from cerebro_plpy.predicting import models as trained_models
from cerebro_plpy.predicting import trained
from cerebro_plpy.predicting.answering import readings
from cerebro_plpy.predicting.answering.net import answer_packed
from cerebro_plpy.registry import references
from cerebro_plpy.store import interrupts, names, session
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.related import series as store

ForecastRow = tuple[str, str | None, float | None, float | None, float | None, str, int | None]
# The status of values that the source has.
KNOWN = "known"
MOST_HISTORY = 100_000


@dataclass(frozen=True)
class Band:
    """The forecast of one series: its values, and a lower and an upper bound for each.

    Unknown bounds are NaN.
    """

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    status: str


@dataclass(frozen=True)
class SourceSeries:
    """The series that a source table has now, and whether its time column has a time zone."""

    laid: Sequence[Series]
    has_zone: bool


@dataclass(frozen=True)
class HeldForecast:
    """A trained forecast, and the name under which the nets of the forecast are found."""

    forecast: Forecast
    name: str
    # A registered version has only one net, which has no `mst_key`.
    is_registered: bool


@dataclass(frozen=True)
class WindowNet:
    """The nets of a forecast, ready to forecast from windows of the given series."""

    db: Database
    name: str
    series: Sequence[Series]
    inputs: InputMaker
    shape: WindowShape
    is_registered: bool = False

    def answer_plainly(self, rows: Windowed, baselines: Iterable[str]) -> dict[str, np.ndarray]:
        """Return, by name, the values that each of the named baselines forecasts for each window.

        A baseline reads more of a series' past than the window that a net reads.
        """
        horizon, season = self.shape.horizon, self.shape.season
        found = {name: np.empty((len(rows), horizon)) for name in baselines}
        for places, longer in look_back(rows, self.series, self.shape):
            for name, answers in found.items():
                answers[places] = BASELINES[name](longer, horizon, season)
                interrupts.tick(self.db)
        return found

    def answer(self, rows: Windowed, mst_key: int) -> np.ndarray:
        """Return the values that the net of a config forecasts for each window, in the unit of the series."""
        given = [one.astype(np.float32) for one in self.inputs.make(self.series, rows).values()]
        model = find_net(self.db, self.name, None if self.is_registered else mst_key)
        (result,) = answer_packed(self.db, model, given)
        return rows.in_unit(result.reshape(len(result), -1).astype(np.float64))


def find_net(db: Database, name: str, mst_key: int | None) -> trained_models.Model:
    """Return the net of a config of a forecast.

    A registered forecast has only one net, and needs no `mst_key`.
    """
    return trained_models.trained(db, trained.find_model(db, name, mst_key, takes_forecast=True))


def forecast(
    db: Database, name: str | None, horizon: int | None, level: float | None, history: int | None
) -> list[ForecastRow]:
    """Return the forecast of each series, with one row for each step.

    Before its forecast, a series gets one row for each of its newest known values, at most `history` of them.
    A series that cannot be forecast gets a single row, with its status.
    """
    number = _level(level)
    if history is None:
        raise CerebroError("history is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 0 <= history <= MOST_HISTORY:
        raise CerebroError(f"history is {history}, it must be from 0 to {MOST_HISTORY}")
    held, steps = find_forecast(db, name, horizon)
    found = held.forecast
    read = read_answerable(db, found, steps)
    bands = _answer(db, held, [one for one in read.laid if one.is_answered], number)
    return list(_rows(db, found, read, bands, steps=steps, history=history))


def read_answerable(db: Database, found: Forecast, steps: int) -> SourceSeries:
    """Return the series that the forecast's source table has now.

    The status of each series says whether it can be forecast for the next `steps` steps.
    """
    source = names.resolve_table(db, found.source, "source table")
    read = read_series(db, found, source)
    return replace(read, laid=[_without_columns(one, found, steps) for one in read.laid])


def read_series(db: Database, found: Forecast, source: Table) -> SourceSeries:
    """Return the series that a source table has now, with the columns that the net of the forecast reads.

    Raise an error if the type of a column does not fit the trained forecast.
    """
    further = [*found.inputs.numbers, *found.inputs.words]
    columns = readings.find_columns(db, source, found.time, found.value, keys=found.series, ahead=further)
    right = [column.name for column in columns.ahead] == found.inputs.numbers
    if not right or columns.is_numbered != found.step.is_number:
        raise CerebroError(
            f"a column of {source.quoted} is of another type than when the forecast was trained",
            hint="Train another forecast.",
            sqlstate=WRONG_STATE,
        )
    read = readings.read_series(db, source, columns, found.zone)
    return SourceSeries([lay_out(one, found.step) for one in read], columns.has_zone)


def _without_columns(series: Series, found: Forecast, steps: int) -> Series:
    """Return the series, with the status UNKNOWN if the net lacks values of its input columns.

    The net needs these values for each of the next `steps` steps.
    """
    short = len(series.values) < found.shape.window
    if found.mst_key is None or not series.is_answered or short or found.inputs.knows(series, steps):
        return series
    return replace(series, status=UNKNOWN)


def _level(level: float | None) -> int:
    """Return the index of the lowest level in LEVELS that is at least `level`.

    Intervals are kept only for these levels.
    """
    if level is None:
        raise CerebroError("level is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not LEVELS[0] <= level <= LEVELS[-1]:
        raise CerebroError(
            f"level is {level:g}",
            detail=f"It must be from {LEVELS[0]:g} to {LEVELS[-1]:g}.",
            hint="0.9 is usual.",
        )
    return next(place for place, kept in enumerate(LEVELS) if kept >= level - 1e-9)


def find_forecast(db: Database, name: str | None, horizon: int | None) -> tuple[HeldForecast, int]:
    """Return the forecast of this name, and the number of steps to forecast.

    The number is `horizon`, or the number of steps that the forecast was trained for if `horizon` is None.
    """
    if name is None or not name.strip():
        raise CerebroError("name is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    held = _find(db, name)
    most = held.forecast.shape.horizon
    steps = most if horizon is None else horizon
    if not 1 <= steps <= most:
        raise CerebroError(
            f"horizon is {steps}, and {name} was trained for {most}",
            hint=f"Give 1 to {most}, or train another forecast.",
        )
    return held, steps


def _find(db: Database, name: str) -> HeldForecast:
    """Return the forecast of this name.

    A name with @ means a registered model. Another name means the table that describes a forecast, if there
    is one, and else a registered model.
    """
    table = None if references.is_marked(name) else find_description(db, name)
    if table is None:
        held = find_registered(db, name)
        _check_tables(db, [names.resolve_table(db, held.forecast.source, "source table")])
        return held
    _check_tables(db, [table])
    found = read_forecast(store.read_document(db, table), table.quoted)
    if not models.is_own(db, table):
        _check_tables(db, [names.resolve_table(db, found.source, "source table")])
    return HeldForecast(found, name, is_registered=False)


def find_description(db: Database, name: str) -> Table | None:
    """Return the table that describes the forecast of a table of nets, or None if there is no such table."""
    table = names.find_table(db, names.with_suffix(name, store.SUFFIX), "forecast")
    # A table may have this name but no document: the nets of a forecast of sales may be in sales_forecast.
    return None if table is None or names.find_missing_columns(db, table, [store.DOCUMENT]) else table


def find_registered(db: Database, name: str) -> HeldForecast:
    """Return the forecast that a registered model holds. Raise an error if the model is not a forecast."""
    try:
        held = trained.find_registered(db, name)
    except CerebroError as error:
        if references.is_marked(name):
            raise
        usual = names.with_suffix(name, store.SUFFIX)
        raise CerebroError(
            f"forecast {name} does not exist",
            detail=f"There is no table {usual} that describes one, and no registered model.",
            hint=f"Did you mean {usual}?"
            if find_description(db, usual) is not None
            else "cerebro.train_forecast makes one.",
            sqlstate=UNDEFINED_TABLE,
        ) from error
    document = json.loads(held.read(db).lineage).get(store.LINEAGE)
    if document is None:
        raise CerebroError(
            f"{held.name} is no forecast", hint="Predict with cerebro.predict.", sqlstate=WRONG_OBJECT
        )
    return HeldForecast(read_forecast(json.dumps(document), held.name), held.name, is_registered=True)


def _check_tables(db: Database, tables: Sequence[Table]) -> None:
    trained.check_readable(
        db,
        tables,
        instead="Train a forecast of your own on the view.",
        why="A forecast reads the table that describes it, its models and its source as whoever calls.",
    )


def _answer(db: Database, held: HeldForecast, series: Sequence[Series], level: int) -> dict[str, Band]:
    """Return the forecast of each series, by the key of the series.

    A series shorter than a window gets its last season, or its last value, repeated, without bounds.
    """
    found = held.forecast
    shape = found.shape
    long = [one for one in series if len(one.values) >= shape.window]
    bands = {one.key: _short_band(one, found) for one in series if len(one.values) < shape.window}
    if long:
        rows = cut(long, [[len(one.values)] for one in long], shape)
        net = WindowNet(
            db, held.name, long, inputs=found.inputs, shape=shape, is_registered=held.is_registered
        )
        answers = answer_best(net, rows, found)
        changed = rows.has_changed[:, None]
        answers = np.where(changed, answers, rows.centers)
        reach = np.where(changed, rows.scales, 0.0) * found.radii[level]
        for place, one in enumerate(long):
            values = answers[place]
            bands[one.key] = Band(values, values - reach[place], values + reach[place], one.status)
    return bands


def answer_best(net: WindowNet, rows: Windowed, found: Forecast) -> np.ndarray:
    """Return the values that a forecast gives for each window.

    They are the median of the values that its net and its baselines forecast. A forecast may have a net,
    baselines, or both.
    """
    answers = list(net.answer_plainly(rows, found.baselines).values())
    if found.mst_key is not None:
        answers.append(net.answer(rows, found.mst_key))
    return np.median(answers, axis=0)


def _short_band(one: Series, found: Forecast) -> Band:
    season = found.shape.season if len(one.values) >= found.shape.season else 1
    window = min(len(one.values), found.shape.window)
    rows = Windowed(
        series=np.zeros(1, np.int64),
        origins=np.array([len(one.values)]),
        known=one.values[None, -window:],
        slopes=np.zeros(1),
        changes=np.zeros(1),
        followed=np.empty((1, 0)),
        read=np.empty((1, 0), bool),
        ahead=np.empty((1, 0, 0)),
    )
    values = BASELINES[SEASONAL_NAIVE if season > 1 else NAIVE](rows, found.shape.horizon, season)[0]
    unknown = np.full(len(values), np.nan)
    return Band(values, unknown, unknown, SHORT)


def _rows(
    db: Database,
    found: Forecast,
    read: SourceSeries,
    bands: dict[str, Band],
    *,
    steps: int,
    history: int,
) -> Iterator[ForecastRow]:
    """Yield the rows of the result.

    The times of all series are sent to the server at once, which returns them as text.
    """
    times = {one.key: find_times(found, one, steps, history) for one in read.laid if one.is_answered}
    stamps = show_times(db, found, times, has_zone=read.has_zone)
    for one in read.laid:
        if not one.is_answered:
            yield one.key, None, None, None, None, one.status, None
            continue
        band, first = bands[one.key], len(one.values) - min(history, len(one.values))
        before, filled = one.values[first:], one.filled[first:]
        for place, time in enumerate(times[one.key].tolist()):
            number = round(time) if found.step.is_number else None
            if place < len(before):
                status = FILLED if filled[place] else KNOWN
                yield one.key, stamps.get(time), float(before[place]), None, None, status, number
                continue
            step = place - len(before)
            bounds = (band.values[step], band.lower[step], band.upper[step])
            value, lower, upper = (float(bound) if np.isfinite(bound) else None for bound in bounds)
            yield one.key, stamps.get(time), value, lower, upper, band.status, number


def find_times(found: Forecast, series: Series, steps: int, history: int) -> np.ndarray:
    """Return the times of a series' newest `history` values and of the `steps` steps after them."""
    length = len(series.values)
    return found.step.after(series.stamps, np.arange(length - min(history, length), length + steps))


def show_times(
    db: Database, found: Forecast, times: Mapping[str, np.ndarray], *, has_zone: bool
) -> Mapping[float, str]:
    """Return each time as the text that the session would show.

    If times are integers, return an empty mapping.
    """
    if found.step.is_number:
        return {}
    distinct = np.unique(np.concatenate([np.empty(0), *times.values()])).tolist()
    zone = found.zone if has_zone else session.time_zone(db)
    shown = store.show_stamps(db, distinct, by_wall=found.step.by_wall or not has_zone, zone=zone)
    return dict(zip(distinct, shown, strict=True))
