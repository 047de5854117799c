"""Backtests: compare forecasts with the values that followed, choose the best, and find intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.forecasting.windows import Windowed

# The levels for which intervals are kept.
LEVELS = tuple(round(0.5 + 0.01 * number, 2) for number in range(50))
# With fewer errors at a step, the errors of all steps say how they spread, and each step how much.
ENOUGH = 200
# A net must be better than a baseline by this many standard errors.
STANDARD_ERRORS = 2.0
# With fewer series, the windows of each horizon of origins count as one, in place of those of a series.
FEW_SERIES = 8


@dataclass(frozen=True)
class BacktestScore:
    """The error of answers for some windows, once scaled and once in the unit of the series.

    The mean absolute scaled error (`mase`) can be compared between series of different sizes. The mean
    absolute error (`mae`) is easier to picture.
    """

    mase: float
    mae: float


def find_errors(rows: Windowed, answers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the mean absolute scaled error of each window: the error divided by the scale of its series.

    `scales` has a number for each series (`Jobs.scales`). The error is NaN if the series never changes.
    """
    found = scales[rows.series]
    with np.errstate(all="ignore"):
        errors = _mean_of_known(_sizes(rows, answers)) / found
    return np.where(np.isfinite(errors) & (found > 0), errors, np.nan)


def measure(rows: Windowed, answers: np.ndarray, scales: np.ndarray) -> BacktestScore:
    """Return the mean errors over all windows; `scales` has the scale of each series."""
    errors = find_errors(rows, answers, scales)
    mase = float(np.nanmean(errors)) if np.isfinite(errors).any() else math.nan
    return BacktestScore(mase, float(np.nanmean(_sizes(rows, answers))))


def _sizes(rows: Windowed, answers: np.ndarray) -> np.ndarray:
    """Return how far answers are from the values that followed; NaN where none was read."""
    return np.where(rows.read, np.abs(answers - rows.followed), np.nan)


def _mean_of_known(errors: np.ndarray) -> np.ndarray:
    """Return the mean of each row's numbers that are not NaN; NaN for a row without any."""
    known = np.isfinite(errors)
    counts = known.sum(axis=1)
    return np.where(counts > 0, np.where(known, errors, 0).sum(axis=1) / np.maximum(counts, 1), np.nan)


def is_better(errors: np.ndarray, others: np.ndarray, blocks: np.ndarray) -> bool:
    """Return whether `errors` are smaller than `others` by more than chance.

    Both have a number for each window; `blocks` has the block of each window (`find_blocks`). One block alone
    tells nothing of chance.
    """
    parts = find_gains(errors, others, blocks)
    return len(parts) > 1 and bool(parts.mean() > STANDARD_ERRORS * parts.std(ddof=1) / math.sqrt(len(parts)))


def find_blocks(rows: Windowed) -> np.ndarray:
    """Return the number of each window's block. Windows of different blocks hardly overlap.

    A block has the windows of one series. Few series would be too few numbers to tell chance by, so then a
    block has the windows whose origins lie within one horizon.
    """
    if len(np.unique(rows.series)) >= FEW_SERIES:
        return rows.series
    firsts = {one: rows.origins[rows.series == one].min() for one in np.unique(rows.series).tolist()}
    first = np.array([firsts[one] for one in rows.series.tolist()], np.int64)
    parts = (rows.origins - first) // rows.followed.shape[1]
    return np.unique(np.stack([rows.series, parts], axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def find_gains(errors: np.ndarray, others: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Return how much smaller `errors` are than `others`: one mean for each block."""
    gains = others - errors
    known = np.isfinite(gains)
    _, places = np.unique(blocks[known], return_inverse=True)
    return np.bincount(places, gains[known]) / np.bincount(places)


def find_radii(errors: np.ndarray, apart: int | None = None) -> np.ndarray:
    """Return how far intervals reach to each side of a forecast: an array (LEVELS, steps).

    `errors` has an error for each window and step; errors and radii are in the scale of the window. The
    intervals are conformal: a radius is a quantile of the errors' sizes, at the level times (n + 1) / n,
    since the value to come counts as well. As windows of a series overlap, n is `apart` (`count_apart`), or
    the number of errors if that is None.
    """
    sizes = np.abs(errors)
    by_step = [np.sort(each[np.isfinite(each)]) for each in sizes.T]
    least = min(map(len, by_step))
    if not least:
        return np.full((len(LEVELS), errors.shape[1]), np.nan)
    if least >= ENOUGH:
        return np.array([[one[_rank(len(one), level, apart)] for one in by_step] for level in LEVELS])
    steps = np.maximum([one.mean() for one in by_step], np.finfo(float).tiny)
    ordered = np.sort((sizes / steps)[np.isfinite(sizes)])
    return np.stack([ordered[_rank(len(ordered), level, apart)] * steps for level in LEVELS])


def _rank(count: int, level: float, apart: int | None) -> int:
    known = apart or count
    return min(math.ceil((known + 1) / known * level * count - 1e-9), count) - 1


def count_apart(rows: Windowed) -> int:
    """Return how many windows could be chosen so that no two of them forecast the same value."""
    horizon = rows.followed.shape[1]
    spans = [np.ptp(rows.origins[rows.series == one]) for one in np.unique(rows.series)]
    return sum(int(span) // horizon + 1 for span in spans)


def scaled_errors(rows: Windowed, answers: np.ndarray) -> np.ndarray:
    """Return the errors of the answers, divided by the scale of each window.

    They are NaN where no value was read, and for a window of a series that has not changed before.
    """
    tells = rows.read & rows.has_changed[:, None]
    return np.where(tells, (answers - rows.followed) / rows.scales, np.nan)


def find_coverage(errors: np.ndarray, radii: np.ndarray) -> float:
    """Return the share of the values that lie in their intervals, given their errors and the radii."""
    known = np.isfinite(errors)
    return float((np.abs(errors) <= radii)[known].mean()) if known.any() else math.nan


# The errors on windows that choose and on windows that report.
Errors = tuple[np.ndarray, np.ndarray]


def choose_answer(nets: Mapping[str, Errors], baselines: Mapping[str, Errors], blocks: np.ndarray) -> str:
    """Return the name of the net or the baseline that is to make the forecast.

    Each has errors on two sets of windows: on older ones, by which the best net and the best baseline are
    found, and on newer ones, by which this net is tested. The net is chosen if it is better than the best
    baseline on the older windows and, by more than chance, than the best baseline on the newer windows.
    """
    plain = min(baselines, key=lambda name: _mean(baselines[name][0]))
    if not nets:
        return plain
    best = min(nets, key=lambda name: _mean(nets[name][0]))
    ahead = _mean(nets[best][0]) < _mean(baselines[plain][0])
    reported = min(baselines, key=lambda name: _mean(baselines[name][1]))
    wins = ahead and is_better(nets[best][1], baselines[reported][1], blocks)
    return best if wins else plain


def _mean(errors: np.ndarray) -> float:
    known = errors[np.isfinite(errors)]
    return float(known.mean()) if len(known) else math.inf
