"""Series on a grid: one value for each step of time, counted from the first stamp (the time of a value).

Few missing values are filled in; with many, a status says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from cerebro_plpy.forecasting.steps import Stamps, TimeStep

OK, FILLED, SHORT, CONSTANT = "ok", "gaps filled", "short", "constant"
GAPS, IRREGULAR, DUPLICATES, EMPTY = "gaps", "irregular", "duplicate stamps", "empty"
# The status of a series whose columns known ahead lack values for the steps to come.
UNKNOWN = "columns unknown"
# Series of these kinds are answered.
ANSWERED = (OK, FILLED, SHORT, CONSTANT)
# Up to this share of the steps may be missing.
MOST_MISSING = 0.25
# The most steps after the last value that a forecast reaches, and for which columns known ahead are kept.
LONGEST_HORIZON = 10_000
# A grid of more steps than this for each stamp is not made.
MOST_STEPS = 20


@dataclass(frozen=True)
class Reading:
    """A series as it was read: its key columns as JSON, its stamps, and its values, with NaN for NULL."""

    key: str
    stamps: Stamps
    values: np.ndarray
    # A row for each further numeric column. Rows may go on after the last value of the series.
    ahead: np.ndarray = field(default_factory=partial(np.empty, (0, 0)))
    # The words that the series has, one for each column of words.
    words: tuple[str | None, ...] = ()

    @property
    def is_known(self) -> np.ndarray:
        """Whether each row has a value and a stamp."""
        return np.isfinite(self.values) & np.isfinite(self.stamps.moments)

    @property
    def known(self) -> Stamps:
        """The stamps of rows with a value: others, such as those of plans, may have other days."""
        return Stamps(self.stamps.moments[self.is_known], self.stamps.walls[self.is_known])


@dataclass(frozen=True)
class Series:
    """A series on its grid: one value for each step from its first stamp to its last.

    If the rows fit no grid, there are no values, and the status says why.
    """

    key: str
    stamps: Stamps
    values: np.ndarray
    status: str
    # A row for each further column of numbers, by the same steps and those that follow; NaN where unknown.
    ahead: np.ndarray = field(default_factory=partial(np.empty, (0, 0)))
    words: tuple[str | None, ...] = ()
    # The places of the values that were filled in.
    missing: np.ndarray = field(default_factory=partial(np.empty, 0, np.int64))

    @property
    def filled(self) -> np.ndarray:
        """Whether each value was filled in."""
        return np.isin(np.arange(len(self.values)), self.missing)

    @property
    def is_answered(self) -> bool:
        return self.status in ANSWERED


def lay_out(reading: Reading, step: TimeStep) -> Series:
    """Return a series on the grid of its steps, with its status."""
    known, stamps = reading.is_known, reading.known
    if not len(stamps):
        return _without(reading, stamps, EMPTY)
    numbers = step.numbers(stamps)
    if numbers is None:
        return _without(reading, stamps, IRREGULAR)
    if np.any(np.diff(numbers) <= 0):
        return _without(reading, stamps, DUPLICATES)
    length = int(numbers[-1]) + 1
    lacking = length - len(numbers)
    if lacking > MOST_MISSING * length or length > MOST_STEPS * len(numbers):
        return _without(reading, stamps, GAPS)
    values = np.interp(np.arange(length), numbers, reading.values[known])
    flat = length > 1 and np.ptp(values) == 0
    status = CONSTANT if flat else FILLED if lacking else OK
    ahead = _lay_ahead(reading, stamps, step, length)
    missing = np.setdiff1d(np.arange(length), numbers)
    return Series(reading.key, stamps, values, status, ahead=ahead, words=reading.words, missing=missing)


def _lay_ahead(reading: Reading, stamps: Stamps, step: TimeStep, past: int) -> np.ndarray:
    """Return the columns known ahead on the grid of the steps.

    Missing values are interpolated in the past, which is `past` steps long. For steps to come, only values
    that were read are known: a promotion weeks later says nothing of the weeks before it.
    """
    if not len(reading.ahead):
        return reading.ahead
    later = (reading.stamps.moments >= stamps.moments[0]) & step.may_have(reading.stamps)
    numbers = step.numbers(Stamps(reading.stamps.moments[later], reading.stamps.walls[later]))
    if numbers is None:
        # Some rows fit no step: use only the rows at the stamps of the series' values.
        later = np.isin(reading.stamps.moments, stamps.moments)
        numbers = step.numbers(Stamps(reading.stamps.moments[later], reading.stamps.walls[later]))
    if numbers is not None:
        # No forecast reaches further, and a row of the year 9999 would make a grid without end.
        near = numbers < past + LONGEST_HORIZON
        (kept,) = np.nonzero(later)
        numbers, later = numbers[near], kept[near]
    found = []
    for row in reading.ahead[:, later]:
        known = np.isfinite(row)
        places = numbers[known] if numbers is not None else np.empty(0, np.int64)
        length = int(numbers.max()) + 1 if numbers is not None else 0
        nan = np.nan
        grid = np.interp(np.arange(length), places, row[known], left=nan, right=nan) if len(places) else None
        if grid is not None:
            grid[past:][~np.isin(np.arange(past, length), places)] = nan
        found.append(np.full(length, nan) if grid is None else grid)
    return np.array(found)


def _without(reading: Reading, stamps: Stamps, status: str) -> Series:
    return Series(reading.key, stamps, np.empty(0), status)
