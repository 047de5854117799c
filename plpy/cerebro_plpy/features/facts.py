"""The server's counts of what is in a table's columns."""

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
    """Statistics of a column's values that are not NULL. Quartiles, quantiles, the most frequent value, and
    mean and deviation of logarithms are counted where they are asked for."""

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
        """The mean as it is shown, which may be infinite: without what the order of rows decides."""
        if self.mean is None or not math.isfinite(self.mean):
            return self.mean
        return steady(self.mean, self.deviation)

    @staticmethod
    def from_counts(counted: Mapping[str, object]) -> NumberFacts:
        """Return what the server has counted, where numbers are texts with all their digits."""
        given = dict(counted)
        present = given.pop("present")
        quartiles, quantiles = (_floats(given.pop(name, None)) for name in ("quartiles", "quantiles"))
        floats = {name: None if value is None else float(str(value)) for name, value in given.items()}
        known = NumberFacts(int(str(present)), quartiles=quartiles, quantiles=quantiles, **floats)
        return known._within_ends()

    def _within_ends(self) -> NumberFacts:
        """Return the same without a mean and a deviation that cannot be: rounded sums made them.

        No deviation is larger than half the range. One that is says nothing, nor does its mean.
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
    """The share of rows whose text is a number, and the most frequent text that is none."""

    share: float
    other: str | None


@dataclass(frozen=True)
class TextFacts:
    """The most frequent values with how often they occur, and how many there are in all."""

    present: int
    distinct: int
    values: Sequence[tuple[str, int]] = field(default_factory=list)
    # Words in a value, on average.
    words: float = 0.0

    @property
    def numbers(self) -> NumbersInText:
        """The share of numbers among the most frequent values, and the most frequent other value."""
        counted = sum(count for _, count in self.values)
        others = [(value, count) for value, count in self.values if not _NUMBER.fullmatch(value.strip())]
        if not counted:
            return NumbersInText(0.0, None)
        other = others[0][0] if others else None
        return NumbersInText(1 - sum(count for _, count in others) / counted, other)


ColumnFacts = NumberFacts | TextFacts

# A number is a category as well if a label jumps from each of its values to the next by this much more than
# chance has it: in the median, and on average, of squares that are 1 by chance. It has more values than so
# many, each in so many rows on average.
JUMPS, LEAST_VALUES, LEAST_ROWS = (1.5, 2.0), 20, 3
# Chance has at least this share of the greatest square: a label can follow from the value alone.
_SURE = 1e-12


@dataclass(frozen=True)
class LabelByValue:
    """The label at each value of a number, in their order: rows, means, and the variance within a value.

    Of classes there is a mean for each, which is its share; of a quantity one.
    """

    rows: np.ndarray
    means: np.ndarray
    within: float

    @staticmethod
    def from_classes(counted: Sequence[tuple[float, str, int]]) -> LabelByValue:
        """Return what the counts of each value with each class say."""
        values, places = np.unique([value for value, _, _ in counted], return_inverse=True)
        classes, kinds = np.unique([label for _, label, _ in counted], return_inverse=True)
        counts = np.zeros((len(values), len(classes)))
        np.add.at(counts, (places, kinds), [number for *_, number in counted])
        rows = counts.sum(axis=1)
        means = counts / rows[:, np.newaxis]
        return LabelByValue(rows, means, float((rows[:, np.newaxis] * means * (1 - means)).sum()))

    @staticmethod
    def from_quantities(counted: Sequence[tuple[float, int, float, float]]) -> LabelByValue:
        """Return what rows, mean and variance at each value say."""
        table = np.array(sorted(counted), np.float64).reshape(-1, 4)
        return LabelByValue(table[:, 1], table[:, 2:3], float((table[:, 1] * table[:, 3]).sum()))

    @property
    def jumps(self) -> bool:
        """True if the label jumps from value to value, so that each is to be learned by itself.

        What is smooth is nearly straight from a value to the next but one, and the mean at a value is that of
        its neighbours but for chance.
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
    """Return a value without the digits that are far below a unit; 0 if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return 0.0
    if not unit or not math.isfinite(unit):
        return value
    grid = 2.0 ** (math.floor(math.log2(unit)) - PLACES)
    return round(value / grid) * grid if math.isfinite(value / grid) else value


def spread(value: float | None) -> float:
    """Return the number to divide by: 1 for a constant."""
    return steady(value, value) if value and math.isfinite(value) and value > 0 else 1.0
