"""Baselines: forecasts that need no training, with which nets are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cerebro_plpy.forecasting.smoothing import answer_smoothing
from cerebro_plpy.forecasting.theta import answer_theta
from cerebro_plpy.forecasting.windows import Windowed

SEASONAL_NAIVE, SEASONAL_MEAN = "seasonal naive", "seasonal mean"
NAIVE, DRIFT, THETA, SMOOTHING = "naive", "drift", "theta", "smoothing"
# The number of seasons in the mean.
_SEASONS = 4


def answer_seasonal(rows: Windowed, horizon: int, season: int) -> np.ndarray:
    """Return the values of the last season of each window, repeated up to the horizon."""
    last = rows.known[:, -season:]
    return np.take(last, np.arange(horizon) % season, axis=1)


def answer_seasonal_mean(rows: Windowed, horizon: int, season: int) -> np.ndarray:
    """Return the mean of the last seasons of each window, at most four, repeated up to the horizon."""
    count = max(1, min(_SEASONS, rows.known.shape[1] // season))
    seasons = rows.known[:, -count * season :].reshape(len(rows), count, season)
    return np.take(seasons.mean(axis=1), np.arange(horizon) % season, axis=1)


def answer_naive(rows: Windowed, horizon: int, season: int) -> np.ndarray:
    """Return the last value of each window for every step."""
    return answer_seasonal(rows, horizon, 1)


def answer_drift(rows: Windowed, horizon: int, season: int) -> np.ndarray:
    """Return a straight line for each window: it leads from the series' first value through the last one."""
    return rows.known[:, -1:] + rows.slopes[:, None] * np.arange(1, horizon + 1)


BASELINES: Mapping[str, Callable[[Windowed, int, int], np.ndarray]] = {
    SEASONAL_NAIVE: answer_seasonal,
    SEASONAL_MEAN: answer_seasonal_mean,
    NAIVE: answer_naive,
    DRIFT: answer_drift,
    THETA: answer_theta,
    SMOOTHING: answer_smoothing,
}
# Baselines that answer together, alone or beside a net. They err in different ways, so their median
# is often better than each; of two it is the mean.
TOGETHER = ((THETA, SMOOTHING), (SEASONAL_NAIVE, THETA, SMOOTHING))
BESIDE_NETS = ((THETA,), (SMOOTHING,), (THETA, SMOOTHING))
