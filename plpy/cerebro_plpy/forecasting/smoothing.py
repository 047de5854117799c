"""Exponential smoothing of windows: forecasts from a level, a trend that fades, and a season.

After Holt, Winters and Gardner. Each window tries all weights, on its values and, if they are positive, on
their logarithms. It forecasts with the weights that had the smallest errors one step ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from cerebro_plpy.forecasting.windows import Windowed

# The shares of an error that go into the level; into the trend, with the share of the trend that each step
# keeps; and into the season.
_LEVELS = (0.05, 0.15, 0.3, 0.5, 0.75)
_TRENDS = ((0.0, 0.0), (0.1, 0.9), (0.1, 0.98), (0.3, 0.9))
_SEASONS = (0.05, 0.2)
# This many windows at once fit in the processor's cache.
_AT_ONCE = 500
_Back = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Weights:
    """All combinations of weights that are tried, one at each place of the arrays.

    `seasonal` says which combinations have a season.
    """

    level: np.ndarray
    trend: np.ndarray
    stays: np.ndarray
    season: np.ndarray
    seasonal: np.ndarray


@dataclass
class _Learned:
    """The level, the trend and the season of each window after a step, for each combination of weights.

    Level and trend are arrays (windows, combinations). The season is an array (steps of a season, windows,
    combinations).
    """

    level: np.ndarray
    trend: np.ndarray
    season: np.ndarray


def answer_smoothing(rows: Windowed, horizon: int, season: int) -> np.ndarray:
    """Return the forecasts of exponential smoothing for the windows."""
    found = [np.empty((0, horizon))]
    for first in range(0, len(rows), _AT_ONCE):
        found.append(_answer(rows.known[first : first + _AT_ONCE], horizon, season))
    return np.concatenate(found)


def _answer(known: np.ndarray, horizon: int, season: int) -> np.ndarray:
    found, errors = _smooth(known, known, horizon, season, np.positive)
    (positive,) = np.nonzero((known > 0).all(axis=1))
    if len(positive):
        values = known[positive]
        of_logs, errors_of_logs = _smooth(np.log(values), values, horizon, season, np.exp)
        better = errors_of_logs < errors[positive]
        found[positive[better]] = of_logs[better]
    return found


def _smooth(
    values: np.ndarray, known: np.ndarray, horizon: int, season: int, back: _Back
) -> tuple[np.ndarray, np.ndarray]:
    """Return the forecasts with the best weights of each window, and their squared errors one step ahead.

    `values` is `known` or its logarithms; `back` converts forecasts on the scale of `values` to the scale
    of `known`.
    """
    count, length = values.shape
    has_season = season > 1 and 2 * season + 2 <= length
    places = season if has_season else 1
    weights = _list_weights(has_season=has_season)
    state = _begin(values, places, weights)
    # No forecast goes beyond the window's range by more than that range.
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    least, most = 2 * least - most, 2 * most - least
    errors = np.zeros(state.level.shape)
    learns = min(2 * places + 1, length // 2)
    for step in range(length):
        ahead = state.level + weights.stays * state.trend
        own = state.season[step % places]
        missed = values[:, step, None] - ahead - own
        if step >= learns:
            told = back(np.clip(ahead + own, least, most))
            errors += (known[:, step, None] - told) ** 2
        state.level = ahead + weights.level * missed
        state.trend = weights.stays * state.trend + weights.level * weights.trend * missed
        own += weights.season * (1 - weights.level) * missed
    best = errors.argmin(axis=1)
    chosen = np.arange(count), best
    grows = np.cumsum(weights.stays[best, None] ** np.arange(1, horizon + 1), axis=1)
    coming = np.stack([state.season[(length + step) % places][chosen] for step in range(horizon)], axis=1)
    found = state.level[chosen][:, None] + grows * state.trend[chosen][:, None] + coming
    return back(np.clip(found, least, most)), errors[chosen]


def _list_weights(*, has_season: bool) -> _Weights:
    seasons = (None, *_SEASONS) if has_season else (None,)
    listed = [
        (level, trend, stays, season or 0.0, season is not None)
        for level, (trend, stays), season in product(_LEVELS, _TRENDS, seasons)
    ]
    level, trend, stays, season, seasonal = (np.array(one) for one in zip(*listed, strict=True))
    return _Weights(level, trend, stays, season, seasonal)


def _begin(values: np.ndarray, places: int, weights: _Weights) -> _Learned:
    """Return the level, the trend and the season before the first step.

    Weights with a season learn them from the first two seasons, others from a line through the first few
    values.
    """
    early = min(values.shape[1], max(4, places))
    level, slope = values[:, 0], (values[:, early - 1] - values[:, 0]) / (early - 1)
    shape = np.zeros((len(values), places))
    with_season = level, slope
    if weights.seasonal.any():
        two = values[:, : 2 * places].reshape(len(values), 2, places)
        first, second = two[:, 0].mean(axis=1), two[:, 1].mean(axis=1)
        line = (second - first) / places
        begins = first - line * (places + 1) / 2
        rest = two - (begins[:, None] + line[:, None] * np.arange(1, 2 * places + 1)).reshape(two.shape)
        shape = rest.mean(axis=1) - rest.mean(axis=(1, 2))[:, None]
        with_season = begins, line
    levels, slopes = (
        np.where(weights.seasonal, own[:, None], plain[:, None])
        for own, plain in zip(with_season, (level, slope), strict=True)
    )
    season = np.where(weights.seasonal, shape.T[:, :, None], 0.0)
    return _Learned(levels, np.where(weights.stays > 0, slopes, 0.0), season)
