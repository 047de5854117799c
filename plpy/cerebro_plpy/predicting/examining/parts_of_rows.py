"""cerebro.evaluate_by: measures how well a model answers all rows of a table, and each sub-group of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, PROGRAM_LIMIT_EXCEEDED, CerebroError
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.kept_answers import (
    KeptAnswers,
    MeasuredError,
    measure_part,
    measure_rows,
)
from cerebro_plpy.predicting.examining.labeled import find_judge
from cerebro_plpy.predicting.examining.scoring import ACCURACY, CHANCE

# 95 % of a normal distribution lie within this many deviations.
_WIDTH = 1.96
# With fewer rows than this, the variance is that of all rows, and a sub-group is never called worse.
_FEWEST = 5
MOST_PARTS = 10_000
PartKey = tuple[str | None, ...]
# metric, value, low, high, worse
MetricValue = tuple[str, float, float, float, bool]
# part, rows, metric, value, low, high, worse
PartValue = tuple[str | None, int, str, float, float, float, bool]


@dataclass
class RunningSums:
    """Sums over rows, for each metric: of the rows' errors, and of the squares of the errors."""

    rows: int
    sums: np.ndarray
    squares: np.ndarray

    def add(self, errors: np.ndarray) -> None:
        self.rows += errors.shape[1]
        self.sums += errors.sum(axis=1)
        self.squares += np.square(errors).sum(axis=1)

    def mean(self, place: int) -> float:
        return float(self.sums[place] / self.rows)

    def variance(self, place: int) -> float:
        """Return the variance of the rows' errors by the metric at this place."""
        found = float(self.squares[place]) / self.rows - self.mean(place) ** 2
        # Rounding may make the variance negative. max(found, 0.0) keeps NaN.
        return max(found, 0.0) * self.rows / max(1, self.rows - 1)

    def bounds(self, place: int, metric: str, variance: float | None = None) -> tuple[float, float, float]:
        """Return the mean error by the metric at this place, and the two ends of its 95 % interval.

        The interval is computed from `variance`, or, if that is None, from the variance of these errors.
        """
        mean = self.mean(place)
        if metric == ACCURACY:
            return mean, *_wilson(mean, self.rows)
        own = self.variance(place) if variance is None else variance
        spread = _WIDTH * math.sqrt(own / self.rows)
        return mean, max(mean - spread, 0.0), mean + spread

    def is_worse(self, place: int, metric: str, whole: RunningSums, parts: int) -> bool:
        """Return whether these rows have a greater error than all rows, by more than chance explains.

        `parts` is the number of sub-groups: among many, a great error in one of them is more often chance.
        """
        if self.rows < _FEWEST:
            return False
        width, usual = NormalDist().inv_cdf(1 - CHANCE / parts), whole.mean(place)
        # A few rows may have equal errors by chance, so the variance is at least that of all rows.
        variance = max(self.variance(place), whole.variance(place))
        if metric == ACCURACY:
            variance = usual * (1 - usual)
            # A few rows are wrong together more often than a normal distribution says (Cornish and Fisher).
            skewness = (1 - 2 * usual) / math.sqrt(self.rows * variance) if variance else 0.0
            width += skewness * (width**2 - 1) / 6
        return self.mean(place) - width * math.sqrt(variance / self.rows) > usual


def _wilson(share: float, rows: int) -> tuple[float, float]:
    """Return Wilson's interval for a share. It holds for few rows, and for shares near 0 and 1 as well."""
    scale = 1 + _WIDTH**2 / rows
    middle = (share + _WIDTH**2 / (2 * rows)) / scale
    half = _WIDTH * math.sqrt(share * (1 - share) / rows + (_WIDTH / (2 * rows)) ** 2) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def evaluate_by(
    db: Database, model: str | None, source: str | None, by: Sequence[str | None] | None, mst_key: int | None
) -> list[PartValue]:
    """Return all metrics of all rows and of each sub-group of the rows.

    The rows of a sub-group have equal values in the columns `by`.
    """
    names = list(by or ())
    if by is None or None in names:
        raise CerebroError(
            "by is NULL or holds NULL",
            hint="Name columns: ARRAY['region']; or none, for all rows together: '{}'.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    columns = [str(name) for name in names]
    judge = find_judge(db, model, source, mst_key, columns, takes_groups=True)
    metrics = scoring.of_rows(judge.is_classes)
    known: dict[PartKey | None, RunningSums] = {}
    kept, numbers = KeptAnswers(), dict[PartKey, int]()
    for rows in judge.read():
        answers = judge.answer(rows.inputs, rows.groups)
        errors = np.stack([scoring.EACH[metric](answers, rows.truth) for metric in metrics])
        parts = np.zeros(len(answers), int)
        for key, places in _parts(rows.texts).items():
            parts[places] = numbers.setdefault(key, len(numbers))
            for part in (None, key):
                _sums(known, part, len(metrics)).add(errors[:, places])
        kept.add(answers, rows.truth, parts)
    together = _of_all_rows(kept, len(numbers), scoring.of_all_rows(judge.is_classes))
    found: list[PartValue] = []
    parts = sorted(numbers, key=lambda key: -known[key].rows) if columns else []
    for key in (None, *parts):
        shown = None if key is None else json.dumps(dict(zip(columns, key, strict=True)), ensure_ascii=False)
        place = None if key is None else numbers[key]
        lines = [*_of_rows(known, key, metrics), *together.get(place, [])]
        found += [(shown, known[key].rows, *line) for line in lines]
    return found


def _parts(keys: Sequence[tuple[str | None, ...]]) -> Mapping[tuple[str | None, ...], list[int]]:
    found: dict[tuple[str | None, ...], list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return found


def _sums(known: dict[PartKey | None, RunningSums], key: PartKey | None, metrics: int) -> RunningSums:
    if key not in known and len(known) > MOST_PARTS:
        raise CerebroError(
            f"the columns have more than {MOST_PARTS} different values",
            hint="Name columns of fewer values, or a view that rounds them.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )
    return known.setdefault(key, RunningSums(0, np.zeros(metrics), np.zeros(metrics)))


def _of_rows(
    known: Mapping[PartKey | None, RunningSums], key: PartKey | None, metrics: Sequence[str]
) -> Iterator[MetricValue]:
    """Yield the metrics that are a mean over the rows of a sub-group, or over all rows if `key` is None."""
    own, whole = known[key], known[None]
    for place, metric in enumerate(metrics):
        few = whole.variance(place) if own.rows < _FEWEST else None
        worse = key is not None and own.is_worse(place, metric, whole, len(known) - 1)
        yield metric, *_shown(metric, *own.bounds(place, metric, variance=few)), worse


def _of_all_rows(
    kept: KeptAnswers, parts: int, metrics: Sequence[str]
) -> Mapping[int | None, list[MetricValue]]:
    """Return the metrics that are not a mean over rows, by the number of the sub-group (None: all rows)."""
    usual, sure = scoring.find_width(CHANCE), scoring.find_width(CHANCE / max(1, parts))
    everything, by_part = kept.all_rows(), kept.by_part()
    found: dict[int | None, list[MetricValue]] = {}
    for metric in metrics:
        whole = measure_rows(everything, metric)
        if whole is None:
            continue
        found.setdefault(None, []).append(_line(metric, whole, usual, is_worse=False))
        for part, rows in by_part.items():
            own = measure_part(rows, len(everything.truth), metric, whole)
            if own is not None:
                is_worse = own.is_own and own.error - sure * own.deviation > whole.error
                found.setdefault(part, []).append(_line(metric, own, usual, is_worse=is_worse))
    return found


def _line(metric: str, measured: MeasuredError, width: float, *, is_worse: bool) -> MetricValue:
    spread = width * measured.deviation
    errors = (measured.error, max(0.0, measured.error - spread), measured.error + spread)
    value, *ends = (scoring.shown(metric, error) for error in errors)
    return metric, value, min(ends), max(ends), is_worse


def _shown(metric: str, mean: float, low: float, high: float) -> tuple[float, float, float]:
    value, *ends = (scoring.shown(metric, scoring.error_of(metric, one)) for one in (mean, low, high))
    return value, min(ends), max(ends)
