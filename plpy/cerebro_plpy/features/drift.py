"""Measures how added rows differ from the rows before them, column by column.

Shares and the population stability index are computed from samples of the features. Packed rows lie in the
order of a hash, so any buffer is a random sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.features import profile
from cerebro_plpy.features.encode import UNSEEN, CategoryCodes
from cerebro_plpy.features.profile import Distribution
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

# Used in place of a share of 0.
LEAST_SHARE = 1e-4
# From here on the index is taken for a shift; see `noise`.
SHIFTED = 0.25


@dataclass(frozen=True)
class Counts:
    """The server's counts of a column: all rows, the rows in which it is not NULL, and the mean."""

    rows: int
    present: int
    mean: float | None = None

    @property
    def nulls(self) -> float | None:
        return 1 - self.present / self.rows if self.rows else None


@dataclass(frozen=True)
class Shift:
    """The change of one column, from the earlier rows to the added rows."""

    column: str
    nulls_before: float | None = None
    nulls: float | None = None
    unseen_before: float | None = None
    unseen: float | None = None
    mean_before: float | None = None
    mean: float | None = None
    stability: float | None = None
    # The mean of the index if only chance is at work.
    noise: float = 0.0

    @property
    def is_large(self) -> bool:
        return self.stability is not None and self.stability >= SHIFTED + 2 * self.noise


def of_feature(
    feature: Feature, rows_before: int, counts: Counts, before: np.ndarray, after: np.ndarray
) -> Shift:
    """Return the change of a column; `before` and `after` are samples of its feature, (rows, width)."""
    known = feature.statistics
    nulls_before = null_share(feature, rows_before)
    shares = ((before, nulls_before), (after, counts.nulls))
    unseen = [find_unseen(feature, sample, nulls) for sample, nulls in shares]
    index, noise = compare(describe(feature, before), values_of(feature, after))
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


def null_share(feature: Feature, rows: int) -> float | None:
    """Return the share of NULL in the rows that a feature was made from, or None if it is unknown."""
    known = feature.statistics
    # An earlier release could store a negative number for a view whose rows had changed.
    return min(1.0, max(0, known["nulls"]) / rows) if rows and "nulls" in known else None


def of_values(column: str, before: np.ndarray, after: np.ndarray, times: float = 1.0) -> Shift:
    """Return the change of numbers that were packed without features.

    The numbers were divided by `times` when they were packed.
    """
    index, noise = compare(profile.describe(before.ravel(), is_coded=False), after.ravel())
    means = [float(sample.mean()) * times if sample.size else None for sample in (before, after)]
    return Shift(column, mean_before=means[0], mean=means[1], stability=index, noise=noise)


def of_classes(column: str, before: np.ndarray, after: np.ndarray) -> Shift:
    """Return the change of one-hot labels."""
    index, noise = compare_counts(before.sum(axis=0), after.sum(axis=0))
    return Shift(column, stability=index, noise=noise)


def samples_of(one: FeatureInput, sample: np.ndarray) -> Mapping[str, np.ndarray]:
    """Return the values of each column's feature in a sample of an input."""
    flat = sample.reshape(len(sample), math.prod(sample.shape[1:]))
    ends = np.cumsum([feature.width for feature in one.features]).tolist()
    return {
        feature.name: flat[:, end - feature.width : end]
        for feature, end in zip(one.features, ends, strict=True)
    }


def find_unseen(feature: Feature, sample: np.ndarray, nulls: float | None) -> float | None:
    """Return the share of values or words that are unseen or rare, or None if this is not known.

    Such values have no code of their own. `nulls` is the share of NULL, which does not count as unseen.
    """
    way = feature.way
    if not len(sample):
        return None
    if isinstance(way, Text):
        words = int((sample > 0).sum())
        return None if way.buckets or not words else float((sample == 1).sum() / words)
    if not isinstance(way, Category) or way.encode == HASH:
        return None
    share = float((_codes(way, sample) == CategoryCodes(way)[UNSEEN]).mean())
    return without_nulls(feature, share, nulls)


def without_nulls(feature: Feature, share: float, nulls: float | None) -> float:
    """Return the share of unseen values, given the `share` of rows with the code of unseen values.

    If NULL has the same code, its share `nulls` is subtracted.
    """
    if not isinstance(feature.way, Category):
        return share
    codes = CategoryCodes(feature.way)
    return max(0.0, share - (nulls or 0.0)) if codes[None] == codes[UNSEEN] else share


def _codes(way: Category, sample: np.ndarray) -> np.ndarray:
    if way.encode != ONE_HOT:
        return sample[:, 0].astype(np.int64)
    return np.where(sample.any(axis=1), sample.argmax(axis=1), -1)


def values_of(feature: Feature, sample: np.ndarray) -> np.ndarray:
    """Return the values by which a column is compared with earlier rows, from a sample of its feature.

    The sample is an array (rows, width).
    """
    match feature.way:
        case Number():
            return sample[:, 0]
        case Category() as way:
            return _codes(way, sample)
        case Text():
            return sample[sample > 0].astype(np.int64)
        case Date() as way:
            is_angle = way.is_cyclic(way.parts[0])
            return np.arctan2(sample[:, 0], sample[:, 1]) if is_angle else sample[:, 0]
    return sample.ravel()


def describe(feature: Feature, sample: np.ndarray) -> Distribution:
    """Return the distribution of a column's values, from a sample of its feature."""
    return profile.describe(values_of(feature, sample), is_coded=isinstance(feature.way, Category | Text))


def compare(before: Distribution, after: np.ndarray) -> tuple[float | None, float]:
    """Return the population stability index of values against a distribution, and its noise.

    The noise is the mean of the index if only chance acts: an index that is not much larger shows no change.
    """
    return compare_counts(np.array(before.counts), before.count(after))


def compare_counts(before: np.ndarray, after: np.ndarray) -> tuple[float | None, float]:
    """Return the population stability index of two lists of counts, and its noise.

    The noise is the mean of the index if only chance acts: an index that is not much larger shows no change.
    """
    rows = before.sum(), after.sum()
    if not all(rows):
        return None, 0.0
    old, new = (np.maximum(counts / counts.sum(), LEAST_SHARE) for counts in (before, after))
    index = float(((new - old) * np.log(new / old)).sum())
    return index, float((np.count_nonzero(before + after) - 1) * (1 / rows[0] + 1 / rows[1]))
