"""Inputs of nets besides the window: columns known ahead, columns fixed in a series, and the calendar.

A column known ahead has values for steps to come, such as planned prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cerebro_plpy.forecasting.series import Series
from cerebro_plpy.forecasting.steps import DAY, DAYS, NUMBERS, SECONDS, WEEKDAYS, TimeStep
from cerebro_plpy.forecasting.windows import FLAT, Windowed

WINDOW, AHEAD, STATIC, CALENDAR = "x", "ahead", "static", "calendar"
# Parts of the calendar.
HOUR, WEEKDAY, YEAR = "hour", "weekday", "year"
PARTS = (HOUR, WEEKDAY, YEAR)
# The year is an input only if the series span this many years.
YEAR_SECONDS = 365.2425 * DAY
LEAST_YEARS = 2.0
# The number of words of a column that have a place of their own.
MOST_WORDS = 32
_WAVES = 2


@dataclass(frozen=True)
class ColumnScale:
    """The mean and the deviation of a numeric column."""

    column: str
    center: float
    scale: float


@dataclass(frozen=True)
class StaticColumn:
    """A column that never changes within a series.

    Its values are words, each of which has a place in the input, or numbers if `words` is empty.
    """

    column: str
    words: tuple[str, ...]
    center: float
    scale: float


@dataclass(frozen=True)
class InputMaker:
    """A converter of windows into the inputs of a net."""

    step: TimeStep
    ahead: Sequence[ColumnScale] = ()
    static: Sequence[StaticColumn] = ()
    calendar: Sequence[str] = ()

    @property
    def numbers(self) -> list[str]:
        """The names of the numeric columns, in the order of the rows of `Series.ahead`."""
        return [*(one.column for one in self.ahead), *(one.column for one in self.static if not one.words)]

    @property
    def words(self) -> list[str]:
        return [one.column for one in self.static if one.words]

    def make(self, series: Sequence[Series], rows: Windowed) -> dict[str, np.ndarray]:
        """Return the inputs by name for the windows `rows` of the given series."""
        found = {WINDOW: rows.inputs}
        if self.ahead:
            found[AHEAD] = _scale_ahead(rows, self.ahead)
        if self.static:
            own = np.array([self._describe(one) for one in series])
            found[STATIC] = own[rows.series]
        if self.calendar:
            found[CALENDAR] = self._find_calendar(series, rows)
        return found

    def make_still(self, series: Sequence[Series], window: int, horizon: int) -> dict[str, np.ndarray]:
        """Return the inputs of a series that never moved from its last value.

        Columns and calendar are at their averages.
        """
        found = {WINDOW: np.zeros((1, window))}
        if self.ahead:
            found[AHEAD] = np.zeros((1, horizon * len(self.ahead)))
        if self.static:
            found[STATIC] = np.mean([self._describe(one) for one in series], axis=0, keepdims=True)
        if self.calendar:
            days, waves = 5 if self.step.unit == WEEKDAYS else 7, np.zeros(2 * _WAVES)
            means = {HOUR: waves, WEEKDAY: np.eye(7)[:days].mean(axis=0), YEAR: waves}
            found[CALENDAR] = np.concatenate([means[part] for part in self.calendar])[np.newaxis]
        return found

    def knows(self, series: Series, steps: int) -> bool:
        """Return whether the columns known ahead have values for the next `steps` steps of a series."""
        length, count = len(series.values), len(self.ahead)
        coming = series.ahead[:count, length : length + steps]
        return coming.shape[1] == steps and bool(np.isfinite(coming).all()) if count else True

    def _describe(self, series: Series) -> np.ndarray:
        """Return the values of columns fixed in a series as inputs of a net; 0 for an unknown value."""
        found = list[float]()
        for one, value in zip(self.static, self.static_values(series), strict=True):
            if isinstance(value, float):
                scaled = (value - one.center) / one.scale
                found.append(scaled if np.isfinite(scaled) else 0.0)
            else:
                found += [float(value == word) for word in one.words]
        return np.array(found)

    def static_values(self, series: Series) -> list[str | float | None]:
        """Return the values of columns fixed in a series; an unknown number is NaN, an unknown word None."""
        numbers, words = iter(series.ahead[len(self.ahead) :]), iter(series.words)
        return [next(words) if one.words else _last(next(numbers)) for one in self.static]

    def _find_calendar(self, series: Sequence[Series], rows: Windowed) -> np.ndarray:
        """Return the calendar values of the first step that each window forecasts.

        The calendar of later steps follows from these values, so the net does not need it.
        """
        walls = np.empty(len(rows))
        for number in np.unique(rows.series).tolist():
            own = rows.series == number
            walls[own] = self.step.walls_after(series[number].stamps, rows.origins[own])
        makers = {HOUR: _find_hour, WEEKDAY: _find_weekday, YEAR: _find_year}
        return np.concatenate([makers[part](walls) for part in self.calendar], axis=1)


def _find_hour(walls: np.ndarray) -> np.ndarray:
    return _find_waves(walls / DAY)


def _find_weekday(walls: np.ndarray) -> np.ndarray:
    """Return a row for each wall time, with a one at the place of its weekday, from Monday on.

    Wall times count from the beginning of 1970, which was a Thursday.
    """
    return np.eye(7)[(np.floor(walls / DAY).astype(np.int64) + 3) % 7]


def _find_year(walls: np.ndarray) -> np.ndarray:
    return _find_waves(walls / YEAR_SECONDS)


def _find_waves(turns: np.ndarray) -> np.ndarray:
    angles = [2 * np.pi * number * turns for number in range(1, _WAVES + 1)]
    return np.stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)


def choose_calendar(step: TimeStep, series: Sequence[Series]) -> list[str]:
    """Return the parts of the calendar that differ between steps, such as the hour for steps of an hour.

    The year is one of them only if the series span at least two years.
    """
    if step.unit == NUMBERS:
        return []
    spans = [one.stamps.walls[-1] - one.stamps.walls[0] for one in series]
    by_day = step.unit == WEEKDAYS or (step.unit == DAYS and step.every % 7)
    parts = {
        HOUR: step.unit == SECONDS,
        WEEKDAY: step.unit == SECONDS or bool(by_day),
        YEAR: step.unit != SECONDS and float(np.median(spans)) >= LEAST_YEARS * YEAR_SECONDS,
    }
    return [part for part, wanted in parts.items() if wanted]


def split_columns(series: Sequence[Series], columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the numeric columns that change within some series, and the columns that never change in any."""
    fixed = {
        column for place, column in enumerate(columns) if _never_changes([one.ahead[place] for one in series])
    }
    return [one for one in columns if one not in fixed], [one for one in columns if one in fixed]


def arrange(series: Sequence[Series], columns: Sequence[str], wanted: Sequence[str]) -> list[Series]:
    """Return the series with their numeric columns in the order `wanted` instead of the order `columns`."""
    places = [columns.index(one) for one in wanted]
    return [replace(one, ahead=one.ahead[places]) if len(one.ahead) else one for one in series]


def choose_inputs(
    step: TimeStep,
    series: Sequence[Series],
    rows: Windowed,
    *,
    ahead: Sequence[str],
    static: Sequence[str],
    words: Sequence[str],
) -> InputMaker:
    """Return a converter of windows into inputs, with scales and words from the given series and windows.

    The series have the numeric columns `ahead` and then `static`; `words` are their columns of words.
    """
    scales = [_find_scale(column, rows.ahead[:, :, place]) for place, column in enumerate(ahead)]
    fixed = list[StaticColumn]()
    for place, column in enumerate(static, len(ahead)):
        found = _find_scale(column, np.array([_last(one.ahead[place]) for one in series]))
        fixed.append(StaticColumn(column, (), found.center, found.scale))
    for place, column in enumerate(words):
        counted = Counter(word for one in series if (word := one.words[place]) is not None)
        common = [word for word, _ in sorted(counted.items(), key=_by_count)][:MOST_WORDS]
        if common:
            fixed.append(StaticColumn(column, tuple(common), 0.0, 1.0))
    return InputMaker(step, scales, fixed, choose_calendar(step, series))


def _by_count(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _never_changes(rows: Sequence[np.ndarray]) -> bool:
    known = [row[np.isfinite(row)] for row in rows]
    return all(len(row) == 0 or np.ptp(row) == 0 for row in known) and any(map(len, known))


def _last(row: np.ndarray) -> float:
    """Return the last known number of a row; NaN if none is known."""
    known = row[np.isfinite(row)]
    return float(known[-1]) if len(known) else float("nan")


def _find_scale(column: str, values: np.ndarray) -> ColumnScale:
    known = values[np.isfinite(values)]
    center = float(known.mean()) if len(known) else 0.0
    scale = float(known.std()) if len(known) else 0.0
    return ColumnScale(column, center, scale if scale > FLAT * abs(center) else 1.0)


def _scale_ahead(rows: Windowed, scales: Sequence[ColumnScale]) -> np.ndarray:
    """Return the scaled columns known ahead as a flat input. An unknown value becomes the column's mean."""
    centers = np.array([one.center for one in scales])
    found = (rows.ahead[:, :, : len(scales)] - centers) / np.array([one.scale for one in scales])
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0).reshape(len(rows), -1)
