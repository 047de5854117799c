"""Series on a grid: one value for each step, gaps filled or told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cerebro_plpy.forecasting.steps import Stamps, TimeStep

OK, FILLED, SHORT, CONSTANT = "ok", "gaps filled", "short", "constant"
GAPS, IRREGULAR, DUPLICATES, EMPTY = "gaps", "irregular", "duplicate stamps", "empty"
# Series of these kinds are answered.
ANSWERED = (OK, FILLED, SHORT, CONSTANT)
# Up to this share of the steps may be missing.
MOST_MISSING = 0.25
# A grid of more steps than this for each stamp is not made.
MOST_STEPS = 20


@dataclass(frozen=True)
class Reading:
    """A series as it was read: its columns as JSON, its stamps, and its values with NaN for NULL."""

    key: str
    stamps: Stamps
    values: np.ndarray


@dataclass(frozen=True)
class Series:
    """A series with a value for each step from its first stamp to its last, unless its status forbids."""

    key: str
    stamps: Stamps
    values: np.ndarray
    status: str
    filled: int = 0

    @property
    def is_answered(self) -> bool:
        return self.status in ANSWERED


def lay_out(reading: Reading, step: TimeStep) -> Series:
    """Bring a series onto the grid of its steps, and say how that went."""
    known = np.isfinite(reading.values) & np.isfinite(reading.stamps.moments)
    stamps = Stamps(reading.stamps.moments[known], reading.stamps.walls[known])
    if not len(stamps):
        return _without(reading, stamps, EMPTY)
    numbers = step.numbers(stamps)
    if numbers is None:
        return _without(reading, stamps, IRREGULAR)
    if np.any(np.diff(numbers) <= 0):
        return _without(reading, stamps, DUPLICATES)
    length = int(numbers[-1]) + 1
    missing = length - len(numbers)
    if missing > MOST_MISSING * length or length > MOST_STEPS * len(numbers):
        return _without(reading, stamps, GAPS)
    values = np.interp(np.arange(length), numbers, reading.values[known])
    flat = length > 1 and np.ptp(values) == 0
    status = CONSTANT if flat else FILLED if missing else OK
    return Series(reading.key, stamps, values, status, filled=missing)


def _without(reading: Reading, stamps: Stamps, status: str) -> Series:
    return Series(reading.key, stamps, np.empty(0), status)
