"""Integrated gradients: what each number of a row adds to its score, compared with a starting row.

The slopes of the score are integrated on the straight line between the two rows. The results add up to the
difference of both scores, except for the error of a sum in place of an integral. A step on the line is cut
into smaller steps if the slopes at its ends do not explain how much the score changes between them, so that
a net whose score changes abruptly at one place needs few points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Arrays = Sequence[np.ndarray]
# Returns the scores at some points, which are given input by input, and the slopes at these points.
SlopesAt = Callable[[Arrays], tuple[np.ndarray, Arrays]]
# The first points are one call.
FIRST = 32
MOST = FIRST * 30
# How many smaller steps a step is cut into; and about how many points are added in one round.
_PIECES, _ADDED = 8, 256
# The slopes at all points are kept in memory, so large rows have fewer points, but at least `_LEAST`.
_HELD_BYTES, _LEAST = 128 << 20, 8
# The sum may differ from the difference of scores by this share of it. The errors of the steps may add up to
# four times as much if they cancel. `_ROUNDED` is the relative rounding error of a score.
ENOUGH, _CANCELLED = 0.01, 4
_ROUNDED = 1e-6


@dataclass(frozen=True)
class Attribution:
    """The scores of both rows, what each number adds (`parts`), and the relative error of the parts' sum."""

    baseline: float
    score: float
    parts: list[np.ndarray]
    error: float


class _StraightWay:
    """The line between two rows, with the points on it whose scores and slopes are computed so far."""

    def __init__(self, slopes_at: SlopesAt, start: Arrays, end: Arrays, at_once: int) -> None:
        self._slopes_at, self._start, self._at_once = slopes_at, start, at_once
        self._end = end
        self._moves = [b - a for a, b in zip(start, end, strict=True)]
        self.shares = self.scores = self._rates = np.zeros(0)
        self._slopes = [np.zeros((0, *move.shape), np.float32) for move in self._moves]

    def add(self, shares: np.ndarray) -> None:
        """Compute the scores and slopes at more points, given as shares of the line from 0 to 1."""
        scores, slopes = self._ask(shares.astype(np.float32))
        found = zip(slopes, self._moves, strict=True)
        rates = sum(one.reshape(len(shares), -1) @ move.ravel() for one, move in found)
        order = np.argsort(np.concatenate([self.shares, shares]))
        self.shares = np.concatenate([self.shares, shares])[order]
        self.scores = np.concatenate([self.scores, scores])[order]
        self._rates = np.concatenate([self._rates, rates])[order]
        both = zip(self._slopes, slopes, strict=True)
        self._slopes = [np.concatenate([old, new])[order] for old, new in both]

    def _ask(self, shares: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        asked = []
        for first in range(0, len(shares), self._at_once):
            own = shares[first : first + self._at_once]
            ways = zip(self._start, self._end, strict=True)
            asked.append(self._slopes_at([_between(a, b, own) for a, b in ways]))
        slopes = [np.concatenate([found[place] for _, found in asked]) for place in range(len(self._start))]
        return np.concatenate([scores for scores, _ in asked]).astype(np.float64), slopes

    def gaps(self) -> np.ndarray:
        """Return, for each step, the change of score that its slopes predict minus the actual change."""
        return np.diff(self.shares) * (self._rates[1:] + self._rates[:-1]) / 2 - np.diff(self.scores)

    def parts(self) -> list[np.ndarray]:
        steps = np.diff(self.shares)
        weights = (np.append(steps, 0) + np.append(0, steps)) / 2
        ways = zip(self._slopes, self._moves, strict=True)
        return [move.astype(np.float64) * np.tensordot(weights, slopes, 1) for slopes, move in ways]


def attribute(slopes_at: SlopesAt, start: Arrays, end: Arrays, at_once: int) -> Attribution:
    """Return what each number adds to the score on the line from the row `start` to the row `end`.

    `slopes_at` is called with at most `at_once` points.
    """
    way = _StraightWay(slopes_at, start, end, at_once)
    most = min(MOST, _HELD_BYTES // max(1, 4 * sum(one.size for one in start)))
    way.add(np.linspace(0, 1, min(FIRST, max(most, _LEAST))))
    while len(way.shares) < most:
        steps = _find_bent(way.gaps(), _allowed(way))
        if len(steps) == 0:
            break
        way.add(_within(way.shares, steps)[: most - len(way.shares)])
    baseline, score, parts = float(way.scores[0]), float(way.scores[-1]), way.parts()
    gap = abs(sum(float(part.sum()) for part in parts) - (score - baseline))
    return Attribution(baseline, score, parts, _error(gap, score, baseline))


def _allowed(way: _StraightWay) -> float:
    """Return the largest error that the sum over all steps may have."""
    ends = way.scores[[0, -1]]
    return max(ENOUGH * abs(float(ends[1] - ends[0])), _ROUNDED * max(1.0, *np.abs(ends).tolist()))


def _find_bent(gaps: np.ndarray, allowed: float) -> np.ndarray:
    """Return the steps with the largest gaps, in descending order; no steps if the gaps are small enough."""
    sizes = np.abs(gaps)
    if abs(gaps.sum()) <= allowed and sizes.sum() <= _CANCELLED * allowed:
        return np.zeros(0, int)
    order = np.argsort(-sizes)
    left = sizes.sum() - np.cumsum(sizes[order]) + sizes[order]
    return order[left > allowed / 2][: _ADDED // (_PIECES - 1)]


def _between(start: np.ndarray, end: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the points at these shares of the line; shares 0 and 1 give exactly `start` and `end`."""
    apart = shares.reshape(-1, *[1] * start.ndim)
    return start * (1 - apart) + end * apart


def _within(shares: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the points, as shares of the line, that cut each of the steps into `_PIECES` equal pieces."""
    inner = np.arange(1, _PIECES) / _PIECES
    return (shares[steps, np.newaxis] + (shares[steps + 1] - shares[steps])[:, np.newaxis] * inner).ravel()


def _error(gap: float, score: float, baseline: float) -> float:
    """Return the gap as a share of the difference of scores; 0 if it is within the scores' rounding error."""
    if gap <= _ROUNDED * max(1.0, abs(score), abs(baseline)):
        return 0.0
    return gap / abs(score - baseline) if score != baseline else math.inf
