"""Steps of time: how far apart the stamps of a series are, and which stamps come next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cerebro_plpy.errors import DATA_CORRUPTED, OUT_OF_RANGE, CerebroError
from cerebro_plpy.logical.options import is_number

SECONDS, DAYS, WEEKDAYS, MONTHS, NUMBERS = "seconds", "days", "weekdays", "months", "numbers"
UNITS = (SECONDS, DAYS, WEEKDAYS, MONTHS, NUMBERS)
DAY = 86400
LONGEST = 1e12
# Stamps may be off by this share of a step.
NEAR = 0.02
# Steps of a day or more are counted by the calendar; a day of daylight saving time has 23 hours.
LEAST_DAY = 22 * 3600
# A series skips weekends if at most this share of its days is on weekends.
MOST_WEEKEND = 0.01
_MONTH, _MONTHS = (28, 31), {1: (28, 31), 2: (59, 62), 3: (89, 92), 6: (181, 184), 12: (365, 366)}
# How many steps a season has, by the unit and by seconds.
_OF_DAYS = {1: 7, 7: 52}
_OF_MONTHS = {1: 12, 2: 6, 3: 4, 6: 2}


@dataclass(frozen=True)
class Stamps:
    """The stamps of a series in order, as moments and as wall times (what a clock on the wall shows).

    Steps by the calendar, such as days, are counted in wall times, shorter ones in moments. Both are seconds
    since 1970. If times are whole numbers, both have these numbers.
    """

    moments: np.ndarray
    walls: np.ndarray

    def __len__(self) -> int:
        return len(self.moments)


@dataclass(frozen=True)
class TimeStep:
    """The time from one stamp to the next: the number `every` of a unit, such as 2 days."""

    unit: str
    every: float

    @property
    def by_wall(self) -> bool:
        """Whether steps are counted by the calendar (in wall times), not in seconds between moments."""
        return self.unit not in (SECONDS, NUMBERS)

    @property
    def is_number(self) -> bool:
        """Whether times are whole numbers, whose unit is unknown."""
        return self.unit == NUMBERS

    @property
    def season(self) -> int:
        """The usual number of steps after which values repeat (7 for steps of a day); 1 if there is none."""
        every = round(self.every)
        if self.unit == DAYS:
            return _OF_DAYS.get(every, 1)
        if self.unit == WEEKDAYS:
            return 5
        if self.unit == MONTHS:
            return _OF_MONTHS.get(every, 1)
        if self.unit == NUMBERS:
            return 1
        a_day = DAY / self.every
        if a_day >= 2 and abs(a_day - round(a_day)) < NEAR:
            return round(a_day) if a_day <= 288 else round(3600 / self.every)
        return 1

    def __str__(self) -> str:
        if self.unit == SECONDS:
            for name, seconds in (("hour", 3600), ("minute", 60)):
                if self.every % seconds == 0:
                    return _counted(self.every / seconds, name)
            return _counted(self.every, "second")
        if self.unit == DAYS and self.every % 7 == 0:
            return _counted(self.every / 7, "week")
        name = {DAYS: "day", WEEKDAYS: "weekday", MONTHS: "month", NUMBERS: "unit"}[self.unit]
        return _counted(self.every, name)

    def numbers(self, stamps: Stamps) -> np.ndarray | None:
        """Return the number of each stamp's step, counted from 0 at the first stamp.

        Return None if a stamp lies between two steps.
        """
        if self.unit == MONTHS:
            return _month_numbers(stamps.walls, round(self.every))
        if self.unit == WEEKDAYS:
            return _weekday_numbers(stamps.walls)
        times = stamps.walls if self.by_wall else stamps.moments
        found = (times - times[0]) / self._seconds
        whole = np.round(found)
        return whole.astype(np.int64) if np.all(np.abs(found - whole) <= NEAR) else None

    def may_have(self, stamps: Stamps) -> np.ndarray:
        """Return whether each stamp may be one of a step; a weekend has none if steps are weekdays."""
        if self.unit != WEEKDAYS:
            return np.ones(len(stamps), bool)
        return np.is_busday(_days(stamps.walls))

    def after(self, stamps: Stamps, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the stamps at the given numbers of steps after the first stamp.

        They are wall times if `by_wall` is true, else moments.
        """
        steps = np.asarray(numbers, np.int64)
        if self.unit == MONTHS:
            return _months_after(stamps.walls, steps * round(self.every))
        if self.unit == WEEKDAYS:
            first = _days(stamps.walls[:1])
            days = np.busday_offset(first, steps).astype(np.int64)
            return days * DAY + (stamps.walls[0] - first[0].astype(np.int64) * DAY)
        first = stamps.walls[0] if self.by_wall else stamps.moments[0]
        return first + steps * self._seconds

    def walls_after(self, stamps: Stamps, numbers: np.ndarray) -> np.ndarray:
        """Return the wall times at the given numbers of steps after the first stamp."""
        times = self.after(stamps, numbers)
        if self.by_wall:
            return times
        near = np.minimum(np.searchsorted(stamps.moments, times), len(stamps) - 1)
        return times + (stamps.walls - stamps.moments)[near]

    @property
    def _seconds(self) -> float:
        return self.every * DAY if self.unit == DAYS else self.every

    @property
    def document(self) -> Mapping[str, Any]:
        return {"unit": self.unit, "every": self.every}


def read_step(value: object) -> TimeStep:
    """Return the step that a document describes. Raise an error if it describes none."""
    given = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
    unit, every = given.get("unit"), given.get("every")
    right = unit in UNITS and is_number(every) and 0 < every < LONGEST
    if right and is_number(every) and (unit == SECONDS or every == round(every)):
        return TimeStep(str(unit), every)
    raise CerebroError("the step of a forecast is damaged", sqlstate=DATA_CORRUPTED)


def _counted(number: float, name: str) -> str:
    return f"one {name}" if number == 1 else f"{number:g} {name}s"


def find_step(series: Sequence[Stamps], *, numbers: bool = False) -> TimeStep | None:
    """Return the commonest step of the series; None if no series has two different stamps.

    With `numbers`, times are whole numbers.
    """
    moments = _gaps([one.moments for one in series])
    if not len(moments):
        return None
    seconds = _commonest(moments)
    if numbers:
        return TimeStep(NUMBERS, seconds)
    if seconds == 0:
        raise CerebroError(
            "the commonest step from one time to the next is less than a millisecond",
            hint="Number the times in a view: a whole number can be the time, too.",
            sqlstate=OUT_OF_RANGE,
        )
    if seconds < LEAST_DAY:
        return TimeStep(SECONDS, seconds)
    walls = _commonest(_gaps([one.walls for one in series]))
    days = walls / DAY
    if abs(days - round(days)) > NEAR:
        return TimeStep(SECONDS, seconds)
    months = _find_months(series, days)
    if months:
        return TimeStep(MONTHS, months)
    if round(days) == 1 and _skips_weekends(series):
        return TimeStep(WEEKDAYS, 1)
    return TimeStep(DAYS, round(days))


def _gaps(times: Sequence[np.ndarray]) -> np.ndarray:
    found = np.concatenate([np.empty(0), *(np.diff(one) for one in times)])
    return found[found > 0]


def _commonest(gaps: np.ndarray) -> float:
    """Return the commonest gap, rounded to milliseconds.

    If several are equally common, return the smallest.
    """
    values, counts = np.unique(np.round(gaps, 3), return_counts=True)
    return float(values[counts.argmax()])


def _find_months(series: Sequence[Stamps], days: float) -> int | None:
    """Return how many months a step of this many days has.

    Return None if it has no fixed number of months, or if most series do not keep to a day of the month.
    """
    for months, (least, most) in _MONTHS.items():
        if least <= round(days) <= most:
            long = [one.walls for one in series if len(one) > 1]
            kept = [_month_numbers(walls, months) is not None for walls in long]
            return months if kept and np.mean(kept) > 0.5 else None
    return None


def _days(walls: np.ndarray) -> np.ndarray:
    return np.floor(walls / DAY).astype(np.int64).astype("datetime64[D]")


def _skips_weekends(series: Sequence[Stamps]) -> bool:
    """Return whether most series have hardly any day of a weekend. Short ones are looked at together."""
    each = [_days(one.walls) for one in series]
    long = [days for days in each if _shows_weekends(days)] or [np.concatenate(each)]
    kept = [_shows_weekends(days) and bool(np.is_busday(days).mean() >= 1 - MOST_WEEKEND) for days in long]
    return 2 * sum(kept) > len(kept)


def _shows_weekends(days: np.ndarray) -> bool:
    return len(days) >= 10 and int(np.ptp(days.astype(np.int64))) >= 13


def _weekday_numbers(walls: np.ndarray) -> np.ndarray | None:
    days = _days(walls)
    within = walls - days.astype(np.int64) * DAY
    if not np.is_busday(days).all() or np.ptp(within) > NEAR * DAY:
        return None
    return np.busday_count(days[0], days)


def _month_parts(walls: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays: months since 1970, seconds since the month began, and days in the month."""
    days = _days(walls)
    months = days.astype("datetime64[M]")
    begins, ends = months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]")
    within = walls - begins.astype(np.int64) * DAY
    return months.astype(np.int64), within, (ends - begins).astype(np.int64)


def _month_numbers(walls: np.ndarray, every: int) -> np.ndarray | None:
    months, within, lengths = _month_parts(walls)
    day = np.floor(within / DAY)
    wanted = np.minimum(day.max(), lengths - 1)
    steps = months - months[0]
    if np.any(day != wanted) or np.any(steps % every) or np.ptp(within - day * DAY) > NEAR * DAY:
        return None
    return steps // every


def _months_after(walls: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the wall times at the given numbers of months after the first stamp.

    In a month that lacks the day, the last day of the month is used.
    """
    months, within, lengths = _month_parts(walls)
    day = np.floor(within / DAY)
    # A series whose days are all the last of their month goes on with last days.
    latest = 30 if np.all(day == lengths - 1) else int(day.max())
    then = (months[0] + steps).astype("datetime64[M]")
    begins, ends = then.astype("datetime64[D]"), (then + 1).astype("datetime64[D]")
    length = (ends - begins).astype(np.int64)
    return (begins.astype(np.int64) + np.minimum(latest, length - 1)) * DAY + (within[0] - day[0] * DAY)
