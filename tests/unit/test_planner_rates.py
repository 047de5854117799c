"""Estimates of the time of a mini-batch: as measured, or else by fitted coefficients, none negative."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from cerebro_plpy.planner.estimating import rates
from cerebro_plpy.planner.estimating.costs import RunPace, evaluations_due
from cerebro_plpy.planner.estimating.rates import FITTED, MEASURED, SCALED, SHIPPED, Observation, Rates
from cerebro_plpy.planner.estimating.work import ConfigKind
from measured_kinds import GRID, kind, observed, true_seconds


def make_rates(*seen: Observation, threads: int = 1) -> Rates:
    return Rates(seen, "localhost", threads)


def test_a_kind_that_was_measured_takes_what_it_took() -> None:
    found = make_rates(*map(observed, GRID)).batch(GRID[3])
    assert found == rates.Estimated(true_seconds(GRID[3]), MEASURED)


def test_the_newest_measurement_counts() -> None:
    found = make_rates(observed(GRID[0]), observed(GRID[0], 3.0)).batch(GRID[0])
    assert found.seconds == pytest.approx(3 * true_seconds(GRID[0]))


@pytest.mark.parametrize("wanted", [kind(64), kind(256, 64), kind(1024, 32), kind(300, 300)])
def test_another_kind_is_fitted(wanted: ConfigKind) -> None:
    chance = random.Random(3)
    found = make_rates(*(observed(k, chance.uniform(0.95, 1.05)) for k in GRID)).batch(wanted)
    assert found.source == FITTED
    assert found.seconds == pytest.approx(true_seconds(wanted), rel=0.2)


def test_no_coefficient_is_below_zero_and_known_ones_are_found() -> None:
    rows = np.array([rates.features(k.work, k.parameters, k.batch_size) for k in GRID])
    seconds = np.array([true_seconds(k) for k in GRID])
    found = rates.fit(rows, seconds)
    assert (found >= 0).all()
    assert rows @ found == pytest.approx(seconds, rel=0.05)


def test_without_measurements_the_shipped_constants_say_so() -> None:
    found = make_rates().batch(GRID[0])
    assert found.source == SHIPPED
    assert found.seconds > 0


def test_few_measurements_scale_the_shipped_constants() -> None:
    base = make_rates().batch(kind(64)).seconds
    slow = replace(observed(GRID[0]), batch_seconds=5 * make_rates().batch(GRID[0]).seconds)
    found = make_rates(slow).batch(kind(64))
    assert found.source == SCALED
    assert found.seconds == pytest.approx(5 * base, rel=0.01)


def test_another_engine_takes_the_speed_of_the_host_over() -> None:
    slow = replace(observed(GRID[0]), batch_seconds=4 * make_rates().batch(GRID[0]).seconds)
    other = replace(GRID[0], backend="tensorflow")
    plain = make_rates().batch(other).seconds
    found = make_rates(slow).batch(other)
    assert found.source == SCALED
    assert found.seconds == pytest.approx(4 * plain)


def test_another_host_is_taken_to_be_like_this_one_with_a_wider_range() -> None:
    elsewhere = replace(observed(GRID[0]), host="sdw2")
    known, here = make_rates(observed(GRID[0])).batch(GRID[0]), make_rates(elsewhere).batch(GRID[0])
    assert (here.seconds, here.source, known.source) == (known.seconds, SCALED, MEASURED)


def test_more_threads_share_the_arithmetic_alone() -> None:
    large = kind(100_000, 512)
    one, two = (make_rates(threads=threads).batch(large).seconds for threads in (1, 2))
    assert 0.5 < two / one < 0.7


def test_a_range_is_as_wide_as_what_it_rests_on() -> None:
    assert rates.spread([(1.0, SHIPPED)]) == pytest.approx(2.0)
    assert rates.spread([(9.0, MEASURED), (1.0, SHIPPED)]) < rates.spread([(1.0, MEASURED), (9.0, SHIPPED)])
    assert rates.spread([]) == 1.0


def test_a_run_takes_longer_than_its_visits() -> None:
    """The ratio of a run's time to its visits' is that of its newer half, without the first compiling."""
    pace = RunPace()
    assert pace.factor(2) == 1
    pace.record(1, 1)
    assert pace.factor(2) == 1
    pace = RunPace()
    # Two segments; two seconds of nothing, and then a visit of half a second in every second.
    for second in range(2, 40):
        for _ in range(2):
            pace.record(second, second + 0.5)
    assert pace.factor(2) == pytest.approx(2, rel=0.05)
    assert pace.factor(1) == pytest.approx(1, rel=0.05)
    for second in range(40, 400):
        for _ in range(2):
            pace.record(second, second + 1)
    assert pace.factor(2) == pytest.approx(1, rel=0.01)


def test_evaluations_beside_the_visits_of_one_config_cost_no_time() -> None:
    pace = RunPace()
    for second in range(100):
        pace.record(second, second + 1)
        pace.record(second, second + 1)
    assert pace.factor(1) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("done", "until", "frequency", "due"),
    [(0, 10, 1, 10), (0, 10, 3, 4), (9, 10, 3, 1), (10, 10, 3, 0), (0, 9, 3, 3), (0, 2, 5, 1), (5, 5, 5, 0)],
)
def test_evaluations_that_are_due(done: int, until: int, frequency: int, due: int) -> None:
    assert evaluations_due(done, until, frequency) == due
