"""Measures how rows that were added differ from those before them, column by column.

Shares and the population stability index come from samples of the features themselves: packed rows lie in the
order of a hash, so that any buffer is a random sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.features.encode import CategoryCodes
from cerebro_plpy.features.specification import (
    HASH,
    ONE_HOT,
    Category,
    Date,
    Feature,
    FeatureInput,
    Number,
    Text,
)

# Numbers are compared in so many ranges, each with as many of the earlier rows. Codes are compared one by one
# where they are frequent, and all others together.
RANGES = 10
MOST_CODES = 20
# In place of an empty share.
LEAST_SHARE = 1e-4
# From here on the index is taken for a shift; see `noise`.
SHIFTED = 0.25


@dataclass(frozen=True)
class Counts:
    """The server's counts of a column's rows."""

    rows: int
    present: int
    mean: float | None = None

    @property
    def nulls(self) -> float | None:
        return 1 - self.present / self.rows if self.rows else None


@dataclass(frozen=True)
class Shift:
    """The change of one column, from the rows before to those that were added."""

    column: str
    nulls_before: float | None = None
    nulls: float | None = None
    unseen_before: float | None = None
    unseen: float | None = None
    mean_before: float | None = None
    mean: float | None = None
    stability: float | None = None
    # What chance alone gives the index.
    noise: float = 0.0

    @property
    def is_large(self) -> bool:
        return self.stability is not None and self.stability >= SHIFTED + 2 * self.noise


def of_feature(
    feature: Feature, rows_before: int, counts: Counts, before: np.ndarray, after: np.ndarray
) -> Shift:
    """Compare a column of a feature specification, given samples of its features, (rows, width)."""
    known = feature.statistics
    nulls_before = known["nulls"] / rows_before if rows_before and "nulls" in known else None
    shares = ((before, nulls_before), (after, counts.nulls))
    unseen = [_unseen(feature, sample, nulls) for sample, nulls in shares]
    index, noise = _compared(feature, before, after)
    return Shift(
        feature.name,
        nulls_before=nulls_before,
        nulls=counts.nulls,
        unseen_before=unseen[0],
        unseen=unseen[1],
        mean_before=known.get("mean") if counts.mean is not None else None,
        mean=counts.mean,
        stability=index,
        noise=noise,
    )


def of_values(column: str, before: np.ndarray, after: np.ndarray, times: float = 1.0) -> Shift:
    """Compare numbers that were packed as they are, divided by a constant."""
    index, noise = _ranges(before.ravel(), after.ravel())
    means = [float(sample.mean()) * times if sample.size else None for sample in (before, after)]
    return Shift(column, mean_before=means[0], mean=means[1], stability=index, noise=noise)


def of_classes(column: str, before: np.ndarray, after: np.ndarray) -> Shift:
    """Compare one-hot labels."""
    index, noise = _shares(before.sum(axis=0), after.sum(axis=0))
    return Shift(column, stability=index, noise=noise)


def samples_of(one: FeatureInput, sample: np.ndarray) -> Mapping[str, np.ndarray]:
    """Return the features of each column among those of an input."""
    flat = sample.reshape(len(sample), math.prod(sample.shape[1:]))
    ends = np.cumsum([feature.width for feature in one.features]).tolist()
    return {
        feature.name: flat[:, end - feature.width : end]
        for feature, end in zip(one.features, ends, strict=True)
    }


def _unseen(feature: Feature, sample: np.ndarray, nulls: float | None) -> float | None:
    """Return the share of values, or of words, without a place of their own: unseen or rare."""
    way = feature.way
    if not len(sample):
        return None
    if isinstance(way, Text):
        words = int((sample > 0).sum())
        return None if way.buckets or not words else float((sample == 1).sum() / words)
    if not isinstance(way, Category) or way.encode == HASH:
        return None
    codes = CategoryCodes(way)
    unseen = codes["\0"]
    share = float((_codes(way, sample) == unseen).mean())
    return max(0.0, share - (nulls or 0.0)) if codes[None] == unseen else share


def _codes(way: Category, sample: np.ndarray) -> np.ndarray:
    if way.encode != ONE_HOT:
        return sample[:, 0].astype(np.int64)
    return np.where(sample.any(axis=1), sample.argmax(axis=1), -1)


def _compared(feature: Feature, before: np.ndarray, after: np.ndarray) -> tuple[float | None, float]:
    match feature.way:
        case Number():
            return _ranges(before[:, 0], after[:, 0])
        case Category() as way:
            return _by_code(_codes(way, before), _codes(way, after))
        case Text():
            return _by_code(before[before > 0].astype(np.int64), after[after > 0].astype(np.int64))
        case Date() as way:
            if way.is_cyclic(way.parts[0]):
                return _ranges(*(np.arctan2(sample[:, 0], sample[:, 1]) for sample in (before, after)))
            return _ranges(before[:, 0], after[:, 0])
    return _ranges(before.ravel(), after.ravel())


def _ranges(before: np.ndarray, after: np.ndarray) -> tuple[float | None, float]:
    if not before.size or not after.size:
        return None, 0.0
    edges = np.unique(np.quantile(before, np.arange(1, RANGES) / RANGES))
    # A value that is an edge is in the range below it: of few values each has its own.
    counts = [
        np.bincount(np.searchsorted(edges, sample, side="left"), minlength=len(edges) + 1)
        for sample in (before, after)
    ]
    return _shares(*counts)


def _by_code(before: np.ndarray, after: np.ndarray) -> tuple[float | None, float]:
    codes, counts = np.unique(before, return_counts=True)
    frequent = np.sort(codes[np.argsort(-counts, kind="stable")[:MOST_CODES]])
    return _shares(*(_counted(sample, frequent) for sample in (before, after)))


def _counted(sample: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Count how often each of the codes occurs, and all others together."""
    found = np.array([(sample == code).sum() for code in codes] or [0])
    return np.append(found, len(sample) - found.sum())


def _shares(before: np.ndarray, after: np.ndarray) -> tuple[float | None, float]:
    """Return the population stability index, and its average if nothing but chance is at work."""
    rows = before.sum(), after.sum()
    if not all(rows):
        return None, 0.0
    old, new = (np.maximum(counts / counts.sum(), LEAST_SHARE) for counts in (before, after))
    index = float(((new - old) * np.log(new / old)).sum())
    return index, float((np.count_nonzero(before + after) - 1) * (1 / rows[0] + 1 / rows[1]))
