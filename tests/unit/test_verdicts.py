"""Verdicts on how rows differ from earlier rows: a shift gives an alarm, chance alone does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import drift, profile, verdicts
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.parts_of_rows import RunningSums

TRIALS, COLUMNS, ROWS = 100, 10, 1000
LIMITS = verdicts.read_limits(None, {})


def verdict_on(before: profile.Distribution, values: np.ndarray) -> str:
    return LIMITS.judge(verdicts.STABILITY, None, verdicts.index_beyond(*drift.compare(before, values)))


@pytest.mark.parametrize("rows", [100, ROWS])
def test_the_same_distribution_gives_no_alarm(rows: int) -> None:
    """In 100 trials with several columns of numbers and codes, chance gives at most 5 alarms."""
    random = np.random.default_rng(8)
    alarms = 0
    for _ in range(TRIALS):
        found = set()
        for _ in range(COLUMNS):
            number = profile.describe(random.normal(size=5000), is_coded=False)
            codes = profile.describe(random.poisson(3, 5000), is_coded=True)
            found |= {
                verdict_on(number, random.normal(size=rows)),
                verdict_on(codes, random.poisson(3, rows)),
            }
        alarms += verdicts.ALARM in found
    assert alarms <= 5


@pytest.mark.parametrize("rows", [100, ROWS])
def test_chance_gives_no_alarm_of_shares_and_of_errors(rows: int) -> None:
    """In 100 trials with many shares and two metrics, chance gives at most 5 alarms."""
    random = np.random.default_rng(10)
    alarms = 0
    for _ in range(TRIALS):
        found = set()
        for share in np.linspace(0.01, 0.5, COLUMNS):
            then, now = random.binomial((5000, rows), share) / (5000, rows)
            excess = verdicts.share_beyond(now, then, rows, 5000)
            found |= {LIMITS.judge(measure, None, excess) for measure in (verdicts.NULLS, verdicts.UNSEEN)}
        before, now = (_errors(random, count) for count in (1500, rows))
        sums = RunningSums(0, np.zeros(2), np.zeros(2))
        sums.add(now)
        for place, metric in enumerate((scoring.LOGLOSS, scoring.ACCURACY)):
            _, low, _ = sums.bounds(place, metric)
            excess = verdicts.error_beyond(low, float(before[place].mean()), 0.01)
            found.add(LIMITS.judge(verdicts.METRIC, None, excess))
        alarms += verdicts.ALARM in found
    assert alarms <= 5


def _errors(random: np.random.Generator, rows: int) -> np.ndarray:
    """Return two arrays for random answers of a model: the log loss of each row, and whether it is wrong."""
    right = random.beta(3, 1, rows)
    return np.stack([-np.log(right), right < 0.5])


def test_half_a_deviation_is_an_alarm() -> None:
    random = np.random.default_rng(9)
    for _ in range(TRIALS):
        before = profile.describe(random.normal(size=20_000), is_coded=False)
        assert verdict_on(before, random.normal(0.5, size=ROWS)) == verdicts.ALARM


def test_a_profile_is_written_and_read() -> None:
    made = profile.Profile(
        rows=3,
        columns={"a": profile.describe(np.array([1.0, 2, 3]), is_coded=False)},
        unseen={"b": 0.5},
        answers=profile.describe(np.array([0, 1, 1]), is_coded=True),
        measured="training",
        metrics={"rmse": 1.0},
    )
    assert profile.read(made.as_json()) == made


def test_thresholds_are_of_all_columns_and_of_one() -> None:
    limits = verdicts.read_limits('{"stability": 0.4, "a": {"nulls": 0.9}}', {"a": 1, "b": 1})
    assert (limits.find("stability", "a"), limits.find("nulls", "a"), limits.find("nulls", "b")) == (
        0.4,
        0.9,
        0.1,
    )
    assert [limits.judge("stability", "b", one) for one in (None, 0.1, 0.2, 0.4)] == [
        "ok",
        "ok",
        "warn",
        "alarm",
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"c": {"nulls": 1}}', '"c"'),
        ('{"null": 1}', '"null"'),
        ('{"nulls": 0}', "above 0"),
        ('{"a": {"nulls": "x"}}', "above 0"),
        ("[]", "thresholds"),
    ],
)
def test_a_wrong_threshold_is_named(given: Any, text: str) -> None:
    with pytest.raises(CerebroError, match=text):
        verdicts.read_limits(given, {"a": 1})


def test_a_share_differs_only_beyond_chance() -> None:
    assert verdicts.share_beyond(0.13, 0.1, 100, 10_000) < 0
    assert verdicts.share_beyond(0.5, 0.1, 1000, 10_000) == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(("parts", "rows"), [(2, 500), (100, 1), (100, 5), (100, 200)])
def test_no_part_of_like_rows_is_said_to_be_worse(parts: int, rows: int) -> None:
    """In at most 5 of 100 tables of random rows, a part is said to be worse, however many parts there are."""
    random, told = np.random.default_rng(11), 0
    for _ in range(TRIALS):
        errors = _errors(random, parts * rows)
        whole, *each = (RunningSums(0, np.zeros(2), np.zeros(2)) for _ in range(parts + 1))
        whole.add(errors)
        for part, own in zip(each, np.split(errors, parts, axis=1), strict=True):
            part.add(own)
        told += any(
            part.is_worse(place, metric, whole, parts)
            for part in each
            for place, metric in enumerate((scoring.LOGLOSS, scoring.ACCURACY))
        )
    assert told <= 5


def test_errors_that_are_no_numbers_have_no_bounds() -> None:
    sums = RunningSums(0, np.zeros(1), np.zeros(1))
    sums.add(np.array([[1.0, np.nan]]))
    assert np.isnan(sums.bounds(0, scoring.LOGLOSS)).all()
