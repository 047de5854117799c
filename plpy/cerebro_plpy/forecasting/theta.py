"""The theta method: forecasts by a smoothed level and half the trend, after taking out the season.

After Assimakopoulos and Nikolopoulos (2000): the mean of two forecasts. One continues the straight line
through the window. The other smooths the window's values after doubling their distance from this line.
"""

from __future__ import annotations

import numpy as np

from cerebro_plpy.forecasting.windows import Windowed

# The weights of the newest value that smoothing tries.
_WEIGHTS = np.linspace(0.05, 0.95, 19)
# The quantile of the normal distribution for a test of the season: chance passes it in one of ten cases.
_CHANCE = 1.645


def answer_theta(rows: Windowed, horizon: int, season: int) -> np.ndarray:
    """Return the forecasts of the theta method for the windows."""
    known, length = rows.known, rows.known.shape[1]
    if season == 1 or length < 2 * season:
        return _go_on(known, horizon)
    multiplies = np.asarray((known > 0).all(axis=1, keepdims=True))
    shapes = np.where(_has_season(known, season)[:, None], _find_shape(known, season, multiplies), multiplies)
    own, coming = (shapes[:, place % season] for place in (np.arange(length), length + np.arange(horizon)))
    found = _go_on(np.where(multiplies, known / np.where(multiplies, own, 1), known - own), horizon)
    return np.where(multiplies, found * coming, found + coming)


def _has_season(known: np.ndarray, season: int) -> np.ndarray:
    """Return for each window whether values one season apart are alike, by their autocorrelation."""
    length = known.shape[1]
    centered = known - known.mean(axis=1, keepdims=True)
    total = np.maximum((centered**2).sum(axis=1), np.finfo(float).tiny)
    alike = [(centered[:, lag:] * centered[:, :-lag]).sum(axis=1) / total for lag in range(1, season + 1)]
    before = np.square(alike[:-1]).sum(axis=0)
    return np.abs(alike[-1]) > _CHANCE * np.sqrt((1 + 2 * before) / length)


def _find_shape(known: np.ndarray, season: int, multiplies: np.ndarray) -> np.ndarray:
    """Return, for each window and place of the season, how values there differ from the moving average.

    It is a factor for the windows for which `multiplies` is true, and a difference for the others.
    """
    width = season + 1 - season % 2
    weights = np.ones(width) / season
    if season % 2 == 0:
        weights[[0, -1]] /= 2
    slid = np.lib.stride_tricks.sliding_window_view(known, width, axis=1) @ weights
    first = width // 2
    middle = known[:, first : first + slid.shape[1]]
    with np.errstate(all="ignore"):
        beside = np.where(multiplies, middle / slid, middle - slid)
    places = (first + np.arange(slid.shape[1])) % season
    usual = multiplies[:, 0].astype(float)
    shape = np.stack([_mean_of(beside[:, places == place], usual) for place in range(season)], axis=1)
    mean = shape.mean(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        return np.where(multiplies, np.maximum(shape / mean, 1e-3), shape - mean)


def _mean_of(values: np.ndarray, usual: np.ndarray) -> np.ndarray:
    return values.mean(axis=1) if values.shape[1] else usual


def _go_on(values: np.ndarray, horizon: int) -> np.ndarray:
    """Return forecasts for each row: its smoothed level plus half its trend.

    The level is smoothed with the factor that had the smallest errors on the row.
    """
    length = values.shape[1]
    times = np.arange(length) - (length - 1) / 2
    slopes = values @ times / (times**2).sum()
    level = np.repeat(values[:, :1], len(_WEIGHTS), axis=1)
    errors = np.zeros_like(level)
    for place in range(1, length):
        missed = values[:, place : place + 1] - level
        errors += missed**2
        level = level + _WEIGHTS * missed
    best = errors.argmin(axis=1)
    weight = _WEIGHTS[best]
    start = level[np.arange(len(values)), best]
    steps = np.arange(horizon) + ((1 - (1 - weight) ** length) / weight)[:, None]
    return start[:, None] + slopes[:, None] / 2 * steps
