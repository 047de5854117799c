"""Integrated gradients: what each number of a row adds to a score on the straight way from another row.

The parts add up to the difference of both scores, but for the error of a sum in place of an integral. The
number of steps is doubled, once or more often, until that is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Arrays = Sequence[np.ndarray]
# Returns the score of each of some points, given array by array, and the slopes there.
SlopesAt = Callable[[Arrays], tuple[np.ndarray, Arrays]]
# With both ends, the first steps are one call.
FIRST = 30
MOST = FIRST * 32
# The sum may miss the difference of scores by this share of it. Scores themselves are no more exact.
ENOUGH = 0.01
_ROUNDED = 1e-6


@dataclass(frozen=True)
class Attribution:
    """The scores at both ends, what each number adds, and by how much of the difference the sum misses it."""

    baseline: float
    score: float
    parts: list[np.ndarray]
    error: float


def attribute(slopes_at: SlopesAt, start: Arrays, end: Arrays, at_once: int) -> Attribution:
    """Return what leads from a row to another one; slopes are asked for so many points at once."""
    steps = FIRST
    found = _sum(slopes_at, start, end, steps, at_once=at_once)
    while found.error > ENOUGH and steps < MOST:
        steps = min(MOST, 2 * steps if found.error == math.inf else steps * _times(found.error))
        found = _sum(slopes_at, start, end, steps, at_once=at_once)
    return found


def _times(error: float) -> int:
    """Return the power of two by which there should be more steps: twice as many halve the error."""
    return 2 ** max(1, math.ceil(math.log2(error / ENOUGH)))


def _sum(slopes_at: SlopesAt, start: Arrays, end: Arrays, steps: int, *, at_once: int) -> Attribution:
    """Add up the slopes in the middle of each step."""
    shares = np.concatenate([[0.0, 1.0], (np.arange(steps) + 0.5) / steps])
    baseline, score, sums = _walk(slopes_at, start, end, shares, at_once=at_once)
    ways = zip(start, end, sums, strict=True)
    parts = [(b - a).astype(np.float64) * slopes / steps for a, b, slopes in ways]
    gap = abs(math.fsum(float(part.sum()) for part in parts) - (score - baseline))
    return Attribution(baseline, score, parts, _error(gap, score, baseline))


def _error(gap: float, score: float, baseline: float) -> float:
    """Return the gap as a share of the difference of scores; none, if scores are no more exact than that."""
    if gap <= _ROUNDED * max(1.0, abs(score), abs(baseline)):
        return 0.0
    return gap / abs(score - baseline) if score != baseline else math.inf


def _walk(
    slopes_at: SlopesAt, start: Arrays, end: Arrays, shares: np.ndarray, *, at_once: int
) -> tuple[float, float, list[np.ndarray]]:
    """Return the scores of the first two points, and the sums of the slopes at all others."""
    scores: list[float] = []
    sums = [np.zeros(one.shape) for one in start]
    for points in _points(start, end, shares, at_once):
        found, slopes = slopes_at(points)
        first = max(0, 2 - len(scores))
        scores += found.tolist()
        for total, one in zip(sums, slopes, strict=True):
            total += one[first:].sum(axis=0, dtype=np.float64)
    return scores[0], scores[1], sums


def _points(start: Arrays, end: Arrays, shares: np.ndarray, at_once: int) -> Iterator[list[np.ndarray]]:
    for first in range(0, len(shares), at_once):
        own = shares[first : first + at_once].astype(np.float32)
        yield [a + own.reshape(-1, *[1] * a.ndim) * (b - a) for a, b in zip(start, end, strict=True)]
