"""Statistics of a table's columns, as the server counts them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

# Means and deviations are rounded to so many binary places of the deviation: the order in which the server
# adds up rows, which is not always the same, is lost there.
PLACES = 22


@dataclass(frozen=True)
class NumberFacts:
    """Statistics of a column's values that are not NULL.

    Quartiles, quantiles, mode, and mean and deviation of logarithms are None unless they are needed.
    """

    present: int
    mean: float | None = None
    deviation: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    quartiles: Sequence[float] | None = None
    quantiles: Sequence[float] | None = None
    mode: float | None = None
    log_mean: float | None = None
    log_deviation: float | None = None

    @property
    def is_constant(self) -> bool:
        return self.minimum == self.maximum

    @property
    def steady_mean(self) -> float | None:
        """The mean as it is shown, without digits that depend on the order of rows; it may be infinite."""
        if self.mean is None or not math.isfinite(self.mean):
            return self.mean
        return steady(self.mean, self.deviation)

    @staticmethod
    def from_counts(counted: Mapping[str, object]) -> NumberFacts:
        """Return the statistics in the server's answer, where numbers are texts with all their digits."""
        given = dict(counted)
        present = given.pop("present")
        quartiles, quantiles = (_floats(given.pop(name, None)) for name in ("quartiles", "quantiles"))
        floats = {name: None if value is None else float(str(value)) for name, value in given.items()}
        known = NumberFacts(int(str(present)), quartiles=quartiles, quantiles=quantiles, **floats)
        return known._within_ends()

    def _within_ends(self) -> NumberFacts:
        """Return the statistics with a mean and deviation that the minimum and maximum allow.

        The server's sums are rounded and may give others. A deviation above half the range is impossible,
        and then the mean is wrong too.
        """
        ends = (self.minimum, self.maximum, self.mean, self.deviation)
        if any(one is None or not math.isfinite(one) for one in ends):
            return self
        least, greatest, mean, deviation = cast(tuple[float, float, float, float], ends)
        half = greatest / 2 - least / 2
        if deviation > half:
            return replace(self, mean=least + half, deviation=half)
        return replace(self, mean=min(max(mean, least), greatest))


def _floats(listed: object) -> list[float] | None:
    return [float(str(one)) for one in listed] if isinstance(listed, list) else None


# With a currency, a percent sign, and commas between thousands or before decimals.
_NUMBER = re.compile(
    r"[-+]?[$€£]?(\d{1,3}(,\d{3})+(\.\d+)?|\d+([.,]\d+)?|\.\d+)([eE][-+]?\d+)?\s?[%€]?", re.ASCII
)


@dataclass(frozen=True)
class NumbersInText:
    """The share of rows whose text is a number, and the most frequent text that is not a number."""

    share: float
    other: str | None


@dataclass(frozen=True)
class TextFacts:
    """The most frequent values of a column with their counts, and the number of distinct values."""

    present: int
    distinct: int
    values: Sequence[tuple[str, int]] = field(default_factory=list)
    # The mean number of words in a value.
    words: float = 0.0

    @property
    def numbers(self) -> NumbersInText:
        """Among the most frequent values, the share of numbers, and the first value that is not a number."""
        counted = sum(count for _, count in self.values)
        others = [(value, count) for value, count in self.values if not _NUMBER.fullmatch(value.strip())]
        if not counted:
            return NumbersInText(0.0, None)
        other = others[0][0] if others else None
        return NumbersInText(1 - sum(count for _, count in others) / counted, other)


ColumnFacts = NumberFacts | TextFacts

# A number is also made a category if the label jumps from its values to the next ones: if the squares of
# the jumps, which are 1 by chance, exceed JUMPS in the median and on average. It must have more than
# LEAST_VALUES values, each in LEAST_ROWS rows on average.
JUMPS, LEAST_VALUES, LEAST_ROWS = (1.5, 2.0), 20, 3
# Chance has at least this share of the greatest square: a label can follow from the value alone.
_SURE = 1e-12


@dataclass(frozen=True)
class LabelByValue:
    """Statistics of the label at each value of a column of numbers, in the order of the values.

    `rows` and `means` have the number of rows and the mean of the label at each value. `within` is the
    label's variance at a value, summed over all rows. A label of classes has a mean for each class, which is
    the share of the class in the rows; a quantity has one mean.
    """

    rows: np.ndarray
    means: np.ndarray
    within: float

    @staticmethod
    def from_classes(counted: Sequence[tuple[float, str, int]]) -> LabelByValue:
        """Return the statistics of a label of classes, from the number of rows with each value and class."""
        values, places = np.unique([value for value, _, _ in counted], return_inverse=True)
        classes, kinds = np.unique([label for _, label, _ in counted], return_inverse=True)
        counts = np.zeros((len(values), len(classes)))
        np.add.at(counts, (places, kinds), [number for *_, number in counted])
        rows = counts.sum(axis=1)
        means = counts / rows[:, np.newaxis]
        return LabelByValue(rows, means, float((rows[:, np.newaxis] * means * (1 - means)).sum()))

    @staticmethod
    def from_quantities(counted: Sequence[tuple[float, int, float, float]]) -> LabelByValue:
        """Return the statistics of a quantity, from the number of rows, mean and variance at each value."""
        table = np.array(sorted(counted), np.float64).reshape(-1, 4)
        return LabelByValue(table[:, 1], table[:, 2:3], float((table[:, 1] * table[:, 3]).sum()))

    @property
    def division(self) -> bytes:
        """The rows and means in an order of their own, which columns share that divide the rows alike."""
        # Sums in another order end in other digits.
        pairs = np.column_stack([self.rows, self.means.astype(np.float32)])
        return pairs[np.lexsort(pairs.T[::-1])].tobytes()

    @property
    def jumps(self) -> bool:
        """Whether the label jumps from value to value, so that each value has to be learned by itself.

        A smooth label is nearly linear over three neighbouring values: its mean at the middle value is the
        mean of the other two, except for chance.
        """
        many, rows = len(self.rows), float(self.rows.sum())
        if many <= LEAST_VALUES or rows < LEAST_ROWS * many:
            return False
        before, here, behind = self.means[:-2], self.means[1:-1], self.means[2:]
        found = ((here - (before + behind) / 2) ** 2).sum(axis=1)
        chance = self.within / (rows - many)
        chance *= 1 / self.rows[1:-1] + (1 / self.rows[:-2] + 1 / self.rows[2:]) / 4
        chance = np.maximum(chance, _SURE * (found.max() or 1.0))
        ratios = found / chance
        return bool(np.median(ratios) > JUMPS[0] and ratios.mean() > JUMPS[1])


def steady(value: float | None, unit: float | None) -> float:
    """Return a value without digits that are far below `unit`; 0 if the value is None or not finite.

    Such digits depend on the order in which the server added up the rows.
    """
    if value is None or not math.isfinite(value):
        return 0.0
    if not unit or not math.isfinite(unit):
        return value
    grid = 2.0 ** (math.floor(math.log2(unit)) - PLACES)
    return round(value / grid) * grid if math.isfinite(value / grid) else value


def spread(value: float | None) -> float:
    """Return the number by which to divide a column: `value`, or 1 for a constant column."""
    return steady(value, value) if value and math.isfinite(value) and value > 0 else 1.0
