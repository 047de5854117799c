"""Windows of series: the values before a point of the series, the values that followed, and a scale.

The point is the window's origin: the number of the series' values that are known there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from cerebro_plpy.forecasting.series import Series

# The jobs of windows.
TRAINS, CHOOSES, REPORTS = 0, 1, 2
# The most windows that train, and that choose or report; if there are more, each series gives every second,
# third … one.
MOST_TRAINING, MOST_OTHER = 60_000, 15_000
# A window whose values differ by less than this share of them is flat.
FLAT = 1e-9
# Series train nets if they have a window and this many horizons: one that trains, one that chooses, and one
# that reports.
LEAST_HORIZONS = 3
LONG_SEASON = 24
# Baselines read this many earlier steps at most, or a window if that is longer.
LONGEST_PAST = 500


@dataclass(frozen=True)
class WindowShape:
    """The numbers of steps in a window, in the horizon (the steps to forecast), and in a season."""

    window: int
    horizon: int
    season: int

    @property
    def least(self) -> int:
        """The number of steps that a series needs to be trained on."""
        return self.window + LEAST_HORIZONS * self.horizon


@dataclass(frozen=True)
class Windowed:
    """Windows of series: the known values, the values that followed, and facts about the values before these.

    They are the series' slope, and the root of its mean squared change from one step to the next.
    """

    # The number of each window's series, and its origin: how many values of the series are known.
    series: np.ndarray
    origins: np.ndarray
    known: np.ndarray
    slopes: np.ndarray
    changes: np.ndarray
    followed: np.ndarray
    # Whether each of these values was read, and not filled in. Only such values tell errors.
    read: np.ndarray
    # Further columns at the steps that followed: (windows, steps, columns), NaN where unknown.
    ahead: np.ndarray

    def __len__(self) -> int:
        return len(self.known)

    @property
    def centers(self) -> np.ndarray:
        return self.known[:, -1:]

    @cached_property
    def scales(self) -> np.ndarray:
        """The mean distance of a window's values from their mean.

        For a flat window, the scale is the series' change before. If this is 0 too, it is the values' size.
        """
        means = np.abs(self.known.mean(axis=1, keepdims=True))
        found = np.abs(self.known - self.known.mean(axis=1, keepdims=True)).mean(axis=1, keepdims=True)
        changes = self.changes[:, None]
        flat = np.where(changes > FLAT * means, changes, np.where(means > 0, means, 1.0))
        return np.where(found > FLAT * means, found, flat)

    @property
    def has_changed(self) -> np.ndarray:
        """Whether each window's series has changed before."""
        return self.changes > FLAT * np.abs(self.known.mean(axis=1))

    @property
    def inputs(self) -> np.ndarray:
        """The known values less the last one, divided by the scale of the window."""
        return (self.known - self.centers) / self.scales

    @property
    def targets(self) -> np.ndarray:
        """The values that followed less the last known one, divided by the scale of the window."""
        return (self.followed - self.centers) / self.scales

    def take(self, places: np.ndarray) -> Windowed:
        """Return the windows at the given places."""
        return Windowed(*(getattr(self, field.name)[places] for field in fields(self)))

    def in_unit(self, answers: np.ndarray) -> np.ndarray:
        """Return answers in the unit of the series, given answers in the scales of the windows."""
        return self.centers + self.scales * answers


@dataclass(frozen=True)
class Jobs:
    """The windows by their job.

    Nets are trained on `trains`. The best net or baseline is chosen by its errors on `chooses`. The errors
    that are reported to the caller are measured on `reports`.
    """

    trains: Windowed
    chooses: Windowed
    reports: Windowed
    # For each series: the mean change over a season in the values that train; NaN if it trains nothing.
    scales: np.ndarray


def choose_shape(lengths: Sequence[int], horizon: int, season: int, window: int | None) -> WindowShape:
    """Return the numbers of steps in a window, in the horizon and in a season.

    If `window` is None, a window has four seasons, or two if a season is long. It is shorter if the series
    are too short for that.
    """
    if window is not None:
        return WindowShape(window, horizon, season if season <= window else 1)
    seasons = 0 if season == 1 else 4 if season <= LONG_SEASON else 2
    usual = max(seasons * season, 2 * horizon, 8)
    typical = int(np.median(lengths)) if len(lengths) else 0
    most = max(typical - LEAST_HORIZONS * horizon - horizon, 0)
    found = min(usual, max(most, season if season > 1 else 4, 2))
    return WindowShape(found, horizon, season)


def share_out(series: Sequence[Series], shape: WindowShape) -> Jobs:
    """Cut the series into windows, each of which has one job.

    The oldest are for training, later ones for choosing a net or a baseline, and the newest for reporting
    errors.
    """
    spans = [_spans(len(one.values), shape) for one in series]
    most = (MOST_TRAINING, MOST_OTHER, MOST_OTHER)
    found = []
    for job, limit in enumerate(most):
        total = sum(len(span[job]) for span in spans)
        stride = max(1, -(-total // limit))
        chosen = [_thin(span[job], stride, number) for number, span in enumerate(spans)]
        rows = cut(series, chosen, shape)
        found.append(rows if job == TRAINS else _without_filled(rows, series))
    scales = [
        _mean_change(one.values[: span[TRAINS][-1] + shape.horizon], shape.season) if span[TRAINS] else np.nan
        for one, span in zip(series, spans, strict=True)
    ]
    return Jobs(*found, scales=np.array(scales))


def _spans(length: int, shape: WindowShape) -> tuple[range, range, range]:
    """Return the origins of a series' windows for each job: training, choosing, and reporting errors.

    `length` is the number of the series' values.
    """
    if length < shape.least:
        return range(0), range(0), range(0)
    horizon = shape.horizon
    held = min(max(horizon, length // 5), 4 * horizon)
    held = max(horizon, min(held, (length - shape.window - horizon) // 2))
    trains = range(shape.window, length - 2 * held - horizon + 1)
    chooses = range(length - 2 * held, length - held - horizon + 1)
    return trains, chooses, range(length - held, length - horizon + 1)


def _thin(origins: range, stride: int, number: int) -> range:
    """Return every `stride`th origin of series `number`. Different series begin at different origins."""
    return origins[number % stride :: stride] if len(origins) > stride else origins[-1:]


def _without_filled(rows: Windowed, series: Sequence[Series]) -> Windowed:
    """Return the windows that tell errors, without those that end with a value that was filled in.

    Such a value comes from the values on both sides, so the window would know a later value. If all windows
    are such, return them all.
    """
    missing = [{*one.missing.tolist()} for one in series]
    windows = zip(rows.series.tolist(), rows.origins.tolist(), strict=True)
    keeps = np.array([origin - 1 not in missing[number] for number, origin in windows], bool)
    places = np.flatnonzero(keeps & rows.read.any(axis=1))
    return rows.take(places) if 0 < len(places) < len(rows) else rows


def _mean_change(values: np.ndarray, season: int) -> float:
    """Return how much values change over a season on average, or over one step if that is 0.

    This is the mean error of a naive forecast, by which the errors of other forecasts are divided.

    Return NaN if both are 0 or the series is too short.
    """
    for lag in (season, 1):
        if len(values) > lag:
            found = float(np.abs(values[lag:] - values[:-lag]).mean())
            if found > 0:
                return found
    return float("nan")


def cut(
    series: Sequence[Series], origins: Sequence[Sequence[int] | np.ndarray], shape: WindowShape
) -> Windowed:
    """Return the windows of the series at the given origins (numbers of known values).

    If a series ends before the last step of the horizon of its last window, `followed` is NaN for all windows
    of the series, as it is when values to come are forecast.
    """
    ends = [np.asarray(one, np.int64) for one in origins]
    numbers = np.repeat(np.arange(len(series)), [len(one) for one in ends])
    known = np.empty((len(numbers), shape.window))
    followed = np.full((len(numbers), shape.horizon), np.nan)
    slopes, changes = np.empty(len(numbers)), np.empty(len(numbers))
    read = np.ones(followed.shape, bool)
    width = max((len(one.ahead) for one in series), default=0)
    ahead = np.full((len(numbers), shape.horizon, width), np.nan)
    place = 0
    for one, at in zip(series, ends, strict=True):
        rows = slice(place, place + len(at))
        place += len(at)
        if len(at):
            known[rows] = one.values[at[:, None] + np.arange(-shape.window, 0)]
            slopes[rows] = (one.values[at - 1] - one.values[0]) / np.maximum(at - 1, 1)
            squares = np.concatenate([[0.0], np.cumsum(np.square(np.diff(one.values)))])
            changes[rows] = np.sqrt(squares[at - 1] / np.maximum(at - 1, 1))
            if width:
                ahead[rows] = _known_ahead(one, at[:, None] + np.arange(shape.horizon))
            if at.max() + shape.horizon <= len(one.values):
                followed[rows] = one.values[at[:, None] + np.arange(shape.horizon)]
                read[rows] = ~one.filled[at[:, None] + np.arange(shape.horizon)]
    origins_of_all = np.concatenate([np.empty(0, np.int64), *ends])
    return Windowed(numbers, origins_of_all, known, slopes, changes, followed, read, ahead)


def look_back(
    rows: Windowed, series: Sequence[Series], shape: WindowShape
) -> Iterator[tuple[np.ndarray, Windowed]]:
    """Yield the windows, extended into the past of their series, in sets of windows of equal length.

    Each set comes with the places of its windows in `rows`. Lengths are multiples of the window's own, so
    that there are few sets.
    """
    counts = np.clip(rows.origins // shape.window, 1, max(1, LONGEST_PAST // shape.window))
    for count in np.unique(counts).tolist():
        (places,) = np.nonzero(counts == count)
        bounds = np.searchsorted(rows.series[places], np.arange(1, len(series)))
        origins = np.split(rows.origins[places], bounds)
        yield places, cut(series, origins, replace(shape, window=count * shape.window))


def _known_ahead(series: Series, places: np.ndarray) -> np.ndarray:
    """Return the columns known ahead at the given steps, (windows, steps, columns); NaN where unknown."""
    length = series.ahead.shape[1]
    found = series.ahead[:, np.minimum(places, length - 1)].transpose(1, 2, 0)
    return np.where((places < length)[:, :, None], found, np.nan)
