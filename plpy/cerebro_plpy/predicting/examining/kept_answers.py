"""Keeps answers for the metrics that no mean over the rows gives; of many rows, those that chance chooses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.predicting.examining import scoring

# The more rows there are, the less another one tells.
MOST_ROWS, MOST_BYTES = 100_000, 32 << 20
# A part of fewer rows does not tell how far its metric may be off.
LEAST_ROWS = 40
# Multiplies numbers of rows into bits that follow no pattern of theirs.
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass(frozen=True)
class AnsweredRows:
    """The answers for some rows, and what is true of them."""

    answers: np.ndarray
    truth: np.ndarray


@dataclass(frozen=True)
class MeasuredError:
    """The error of some rows, its deviation, and whether that was measured on these rows themselves."""

    error: float
    deviation: float
    is_own: bool


class KeptAnswers:
    """The answers, what is true, and the part of each row that is kept."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most, self._seen, self._bits = most_rows, 0, 0
        self._kept: list[np.ndarray] = []

    def add(self, answers: np.ndarray, truth: np.ndarray, parts: np.ndarray | None = None) -> None:
        """Add rows; without parts, all are of the part 0."""
        rows = np.arange(self._seen, self._seen + len(answers), dtype=np.uint64)
        self._seen += len(answers)
        added = [rows, np.zeros(len(rows), int) if parts is None else parts]
        added += [answers.astype(np.float32), truth.astype(np.float32)]
        added = _choose(added, self._bits)
        if self._kept:
            added = [np.concatenate(both) for both in zip(self._kept, added, strict=True)]
        self._kept = added
        while len(self._kept[0]) > self._most or sum(one.nbytes for one in self._kept) > MOST_BYTES:
            self._bits += 1
            self._kept = _choose(self._kept, self._bits)

    def all_rows(self) -> AnsweredRows:
        """Return the rows that are kept."""
        _, _, answers, truth = self._kept
        return AnsweredRows(answers, truth)

    def by_part(self) -> Mapping[int, AnsweredRows]:
        """Return the rows that are kept of each part."""
        _, parts, answers, truth = self._kept
        order = np.argsort(parts, kind="stable")
        known, starts = np.unique(parts[order], return_index=True)
        places = np.split(order, starts[1:])
        of_parts = zip(known.tolist(), places, strict=True)
        return {part: AnsweredRows(answers[own], truth[own]) for part, own in of_parts}


def measure_rows(rows: AnsweredRows, metric: str) -> MeasuredError | None:
    """Return the error of rows; None where the metric says nothing of them."""
    if not scoring.can_measure(metric, rows.truth.sum(axis=0)):
        return None
    found = scoring.jackknife(rows.answers, rows.truth, metric)
    spread = scoring.deviation(found.without) if len(found.without) else 0.0
    return MeasuredError(found.whole, spread, is_own=True)


def measure_part(part: AnsweredRows, rows: int, metric: str, whole: MeasuredError) -> MeasuredError | None:
    """Return the error of a part of so many rows; a part of few has its deviation from that of all."""
    count = len(part.truth)
    if count >= LEAST_ROWS:
        return measure_rows(part, metric)
    if not scoring.can_measure(metric, part.truth.sum(axis=0)):
        return None
    error = scoring.ERRORS[metric](part.answers, part.truth)
    return MeasuredError(error, whole.deviation * math.sqrt(rows / count), is_own=False)


def _choose(rows: list[np.ndarray], bits: int) -> list[np.ndarray]:
    """Return one of 2 to the power of `bits` rows, those with the same numbers each time."""
    mixed = (rows[0] * _MIX) >> _SHIFT
    chosen = (mixed & np.uint64((1 << bits) - 1)) == 0
    return [one[chosen] for one in rows]
