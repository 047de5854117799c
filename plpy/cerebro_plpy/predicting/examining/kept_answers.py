"""Keeps answers for metrics that are not a mean over rows. Of very many rows, it keeps a random sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.predicting.examining import scoring

# The most rows, and bytes, that are kept: more rows would make a metric hardly more exact.
MOST_ROWS, MOST_BYTES = 100_000, 32 << 20
# With fewer rows than this, the deviation of a part's metric cannot be measured on the part itself.
LEAST_ROWS = 40
# A multiplier that makes a hash of a row's number.
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass(frozen=True)
class AnsweredRows:
    """The answers for some rows, and the true values that the answers should have."""

    answers: np.ndarray
    truth: np.ndarray


@dataclass(frozen=True)
class MeasuredError:
    """The error of some rows, and its standard deviation.

    `is_own` says whether the deviation was measured on these rows; if not, it follows from that of all rows.
    """

    error: float
    deviation: float
    is_own: bool


class KeptAnswers:
    """Kept rows: the number of each row, its part (sub-group), the answer for it, and its true value."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most, self._seen, self._bits = most_rows, 0, 0
        self._kept: list[np.ndarray] = []

    def add(self, answers: np.ndarray, truth: np.ndarray, parts: np.ndarray | None = None) -> None:
        """Add rows. `parts` has the number of each row's part; without it, all rows belong to part 0."""
        rows = np.arange(self._seen, self._seen + len(answers), dtype=np.uint64)
        self._seen += len(answers)
        added = [rows, np.zeros(len(rows), int) if parts is None else parts]
        # Quantities, one of each row, may lie closer to each other than floats of 32 bits.
        kind = np.float64 if truth.shape[1] == 1 else np.float32
        added += [answers.astype(kind), truth.astype(kind)]
        added = _choose(added, self._bits)
        if self._kept:
            added = [np.concatenate(both) for both in zip(self._kept, added, strict=True)]
        self._kept = added
        while len(self._kept[0]) > self._most or sum(one.nbytes for one in self._kept) > MOST_BYTES:
            self._bits += 1
            self._kept = _choose(self._kept, self._bits)

    @property
    def is_empty(self) -> bool:
        return not self._kept

    def all_rows(self) -> AnsweredRows:
        """Return all kept rows."""
        _, _, answers, truth = self._kept
        return AnsweredRows(answers, truth)

    def by_part(self) -> Mapping[int, AnsweredRows]:
        """Return the kept rows of each part, by the number of the part."""
        _, parts, answers, truth = self._kept
        order = np.argsort(parts, kind="stable")
        known, starts = np.unique(parts[order], return_index=True)
        places = np.split(order, starts[1:])
        of_parts = zip(known.tolist(), places, strict=True)
        return {part: AnsweredRows(answers[own], truth[own]) for part, own in of_parts}


def measure_rows(rows: AnsweredRows, metric: str) -> MeasuredError | None:
    """Return the error of rows; None if the metric cannot be measured on them."""
    if not scoring.can_measure(metric, rows.truth.sum(axis=0)):
        return None
    found = scoring.jackknife(rows.answers, rows.truth, metric)
    spread = scoring.deviation(found.without) if len(found.without) else 0.0
    return MeasuredError(found.whole, spread, is_own=True)


def measure_part(part: AnsweredRows, rows: int, metric: str, whole: MeasuredError) -> MeasuredError | None:
    """Return the error of a part of the rows, or None if the metric cannot be measured on the part.

    `rows` is the number of all rows, and `whole` is their error. The deviation of a part with few rows is
    computed from the deviation of all rows.
    """
    count = len(part.truth)
    if count >= LEAST_ROWS:
        return measure_rows(part, metric)
    if not scoring.can_measure(metric, part.truth.sum(axis=0)):
        return None
    error = scoring.ERRORS[metric](part.answers, part.truth)
    return MeasuredError(error, whole.deviation * math.sqrt(rows / count), is_own=False)


def _choose(rows: list[np.ndarray], bits: int) -> list[np.ndarray]:
    """Return a sample of the rows: about one of 2 to the power of `bits`.

    A hash of a row's number decides, so a sample with more bits is a part of a sample with fewer.
    """
    mixed = (rows[0] * _MIX) >> _SHIFT
    chosen = (mixed & np.uint64((1 << bits) - 1)) == 0
    return [one[chosen] for one in rows]
