"""Integrated gradients: what each number of a row adds to a score on the straight way from another row.

The parts add up to the difference of both scores, but for the error of a sum in place of an integral. Where
the slopes at both ends of a step do not say how far the score moves between them, the step is cut into
smaller ones. So a net that turns all at once, as normalized layers near the mean row do, costs few points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Arrays = Sequence[np.ndarray]
# Returns the score of each of some points, given array by array, and the slopes there.
SlopesAt = Callable[[Arrays], tuple[np.ndarray, Arrays]]
# The first points are one call.
FIRST = 32
MOST = FIRST * 30
# A step that is not straight becomes so many; as many points are added at once as one call takes.
_PIECES, _ADDED = 8, 256
# The slopes of all points are held, of which large rows therefore have fewer.
_HELD_BYTES, _LEAST = 128 << 20, 8
# The sum may miss the difference of scores by this share of it, and all steps together by four times as much
# if their misses cancel. Scores themselves are no more exact than they are rounded.
ENOUGH, _CANCELLED = 0.01, 4
_ROUNDED = 1e-6


@dataclass(frozen=True)
class Attribution:
    """The scores at both ends, what each number adds, and by how much of the difference the sum misses it."""

    baseline: float
    score: float
    parts: list[np.ndarray]
    error: float


class _StraightWay:
    """The points between two rows that are known so far, in their order."""

    def __init__(self, slopes_at: SlopesAt, start: Arrays, end: Arrays, at_once: int) -> None:
        self._slopes_at, self._start, self._at_once = slopes_at, start, at_once
        self._end = end
        self._moves = [b - a for a, b in zip(start, end, strict=True)]
        self.shares = self.scores = self._rates = np.zeros(0)
        self._slopes = [np.zeros((0, *move.shape), np.float32) for move in self._moves]

    def add(self, shares: np.ndarray) -> None:
        """Ask for points, which are shares of the way."""
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
        """Return by how much each step's sum misses the difference of its scores."""
        return np.diff(self.shares) * (self._rates[1:] + self._rates[:-1]) / 2 - np.diff(self.scores)

    def parts(self) -> list[np.ndarray]:
        steps = np.diff(self.shares)
        weights = (np.append(steps, 0) + np.append(0, steps)) / 2
        ways = zip(self._slopes, self._moves, strict=True)
        return [move.astype(np.float64) * np.tensordot(weights, slopes, 1) for slopes, move in ways]


def attribute(slopes_at: SlopesAt, start: Arrays, end: Arrays, at_once: int) -> Attribution:
    """Return what leads from a row to another one; slopes are asked for so many points at once."""
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
    """Return how much all steps may miss together."""
    ends = way.scores[[0, -1]]
    return max(ENOUGH * abs(float(ends[1] - ends[0])), _ROUNDED * max(1.0, *np.abs(ends).tolist()))


def _find_bent(gaps: np.ndarray, allowed: float) -> np.ndarray:
    """Return the steps that miss most, the worst first: the others miss little; none if all is well."""
    sizes = np.abs(gaps)
    if abs(gaps.sum()) <= allowed and sizes.sum() <= _CANCELLED * allowed:
        return np.zeros(0, int)
    order = np.argsort(-sizes)
    left = sizes.sum() - np.cumsum(sizes[order]) + sizes[order]
    return order[left > allowed / 2][: _ADDED // (_PIECES - 1)]


def _between(start: np.ndarray, end: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return points on the way; the ends themselves, also where a difference of theirs would be rounded."""
    apart = shares.reshape(-1, *[1] * start.ndim)
    return start * (1 - apart) + end * apart


def _within(shares: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the points that cut each step into pieces."""
    inner = np.arange(1, _PIECES) / _PIECES
    return (shares[steps, np.newaxis] + (shares[steps + 1] - shares[steps])[:, np.newaxis] * inner).ravel()


def _error(gap: float, score: float, baseline: float) -> float:
    """Return the gap as a share of the difference of scores; none, if scores are no more exact than that."""
    if gap <= _ROUNDED * max(1.0, abs(score), abs(baseline)):
        return 0.0
    return gap / abs(score - baseline) if score != baseline else math.inf
