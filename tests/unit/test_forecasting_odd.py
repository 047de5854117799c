"""Forecasts of odd series: with flat windows, gaps, rows of plans, or weekends in one series alone."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.forecasting import backtest, windows
from cerebro_plpy.forecasting.series import Reading, Series, lay_out
from cerebro_plpy.forecasting.steps import Stamps, TimeStep, find_step
from cerebro_plpy.forecasting.windows import WindowShape

DAY = 86400
DAILY = TimeStep("days", 1)


def days(*numbers: int) -> Stamps:
    stamps = np.array(numbers, float) * DAY
    return Stamps(stamps, stamps)


def series(*values: float) -> Series:
    return Series("{}", days(*range(len(values))), np.array(values, float), "ok")


def test_a_flat_window_has_the_scale_of_the_changes_before_it() -> None:
    """A price that changes every ten days has as large an error after a flat window as after another."""
    steps = np.repeat([100.0, 130, 90, 120], 10)
    rows = windows.cut([series(*steps)], [[30, 34]], WindowShape(4, 3, 1))
    assert rows.scales[:, 0] == pytest.approx([np.sqrt(2500 / 29), np.sqrt(3400 / 33)])
    errors = backtest.scaled_errors(rows, rows.centers + np.zeros((2, 3)))
    assert np.abs(errors[0]) == pytest.approx([30 / rows.scales[0, 0]] * 3)
    # Nothing is known of how a series changes that never has.
    still = windows.cut([series(*[5.0] * 8, 9, 9)], [[8]], WindowShape(4, 2, 1))
    assert np.isnan(backtest.scaled_errors(still, still.centers + np.zeros((1, 2)))).all()


def test_values_that_were_filled_in_tell_no_errors() -> None:
    stamps = [day for day in range(24) if day not in (14, 15, 20)]
    found = lay_out(Reading("{}", days(*stamps), np.array(stamps, float) ** 2), DAILY)
    assert found.status == "gaps filled" and found.missing.tolist() == [14, 15, 20]
    jobs = windows.share_out([found], WindowShape(4, 2, 1))
    for rows in (jobs.chooses, jobs.reports):
        places = rows.origins[:, None] + np.arange(2)
        assert np.array_equal(rows.read, ~np.isin(places, [14, 15, 20]))
        # A window that ends with a value between two others would know the later one.
        assert not np.isin(rows.origins - 1, [14, 15, 20]).any()
        errors = backtest.scaled_errors(rows, rows.centers + np.zeros((len(rows), 2)))
        assert np.array_equal(np.isfinite(errors), rows.read)
    assert np.isfinite(jobs.trains.followed).all()


def test_windows_of_one_series_count_once_for_each_horizon() -> None:
    """Windows of a series overlap: those that follow each other tell the same."""
    walk = np.random.default_rng(3).normal(size=80).cumsum()
    rows = windows.cut([series(*walk)], [[60, 61, 62, 64, 65, 69]], WindowShape(8, 4, 1))
    assert backtest.find_blocks(rows).tolist() == [0, 0, 0, 1, 1, 2]
    gains, none, blocks = np.array([1.0, 1, 1, -1, -1, 0.1]), np.zeros(6), backtest.find_blocks(rows)
    assert backtest.find_gains(none, gains, blocks).tolist() == [1, -1, pytest.approx(0.1)]
    assert not backtest.is_better(none, gains, blocks)
    assert backtest.is_better(none[:2], gains[:2] + [0, 0.1], np.array([0, 1]))
    assert not backtest.is_better(none[:3], gains[:3], backtest.find_blocks(rows.take(np.arange(3))))
    many = windows.cut([series(*walk)] * 8, [[60, 61]] * 8, WindowShape(8, 4, 1))
    assert backtest.find_blocks(many).tolist() == many.series.tolist()


def test_intervals_are_made_of_the_errors_that_are_known() -> None:
    errors = np.random.default_rng(0).normal(size=(900, 2))
    errors[:300, 0] = np.nan
    radii = backtest.find_radii(errors)[backtest.LEVELS.index(0.9)]
    assert radii == pytest.approx([1.645, 1.645], abs=0.15)


def test_rows_of_plans_do_not_change_the_step() -> None:
    """Rows without a value may have other days than the values have, and reach into a far future."""
    weekdays = [day for day in range(4, 60) if (day + 3) % 7 < 5]
    stamps = [*weekdays, *range(60, 75), 3_000_000]
    values = np.array([*map(float, weekdays), *[np.nan] * 16])
    reading = Reading("{}", days(*stamps), values, np.array([np.arange(float(len(stamps)))]))
    step = find_step([reading.known])
    assert step is not None and step == TimeStep("weekdays", 1)
    found = lay_out(reading, step)
    assert found.status == "ok" and len(found.values) == len(weekdays)
    assert found.ahead.shape[1] == len(weekdays) + sum((day + 3) % 7 < 5 for day in range(60, 75))
    assert np.isfinite(found.ahead).all()


def test_one_series_with_weekends_leaves_the_others_their_weekdays() -> None:
    weekdays = [day for day in range(4, 204) if (day + 3) % 7 < 5]
    assert find_step([*[days(*weekdays)] * 3, days(*range(4, 204))]) == TimeStep("weekdays", 1)
    assert find_step([days(*weekdays), *[days(*range(4, 204))] * 3]) == TimeStep("days", 1)
