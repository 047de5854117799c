"""Steps, windows, baselines, errors and intervals of forecasts, compared with results computed by hand."""

from __future__ import annotations

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.forecasting import backtest, baselines, inputs, windows
from cerebro_plpy.forecasting.document import Forecast, read_forecast
from cerebro_plpy.forecasting.inputs import ColumnScale, InputMaker, StaticColumn
from cerebro_plpy.forecasting.parts import StepParts
from cerebro_plpy.forecasting.series import Reading, Series, lay_out
from cerebro_plpy.forecasting.steps import Stamps, TimeStep, find_step
from cerebro_plpy.forecasting.windows import WindowShape
from cerebro_plpy.nets import points
from cerebro_plpy.nets.fitting import NetOutput, NetRows

DAY = 86400
BERLIN = ZoneInfo("Europe/Berlin")
DAILY = TimeStep("days", 1)


def at(*stamps: str) -> Stamps:
    """Return stamps without a time zone."""
    seconds = np.array(stamps, "datetime64[s]").astype(np.int64).astype(float)
    return Stamps(seconds, seconds)


def local(*stamps: datetime) -> Stamps:
    """Return stamps in the time zone of Berlin."""
    zoned = [stamp.replace(tzinfo=BERLIN) for stamp in stamps]
    shifts = [(stamp.utcoffset() or zoned[0] - zoned[0]).total_seconds() for stamp in zoned]
    moments = np.array([stamp.timestamp() for stamp in zoned])
    return Stamps(moments, moments + np.array(shifts))


def days(*numbers: int) -> Stamps:
    seconds = np.array(numbers, float) * DAY
    return Stamps(seconds, seconds)


def shown(seconds: np.ndarray) -> list[str]:
    return [str(np.datetime64(int(one), "s")) for one in seconds]


STEPS = {
    "one hour": (at("2026-01-01T00", "2026-01-01T01", "2026-01-01T02", "2026-01-01T05"), 24, [0, 1, 2, 5]),
    "15 minutes": (at("2026-01-01T00:00", "2026-01-01T00:15", "2026-01-01T00:30"), 96, [0, 1, 2]),
    "one day": (at("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-05"), 7, [0, 1, 2, 4]),
    "one week": (at("2026-01-05", "2026-01-12", "2026-01-26", "2026-02-02"), 52, [0, 1, 3, 4]),
    "one month": (at("2026-01-15", "2026-02-15", "2026-03-15", "2026-05-15"), 12, [0, 1, 2, 4]),
    "3 months": (at("2025-03-31", "2025-06-30", "2025-09-30", "2025-12-31"), 4, [0, 1, 2, 3]),
    "12 months": (at("2023-07-01", "2024-07-01", "2025-07-01"), 1, [0, 1, 2]),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_step_is_the_commonest_gap(name: str) -> None:
    stamps, season, numbers = STEPS[name]
    step = find_step([stamps])
    assert step is not None and str(step) == name and step.season == season
    found = step.numbers(stamps)
    assert found is not None and found.tolist() == numbers


def test_days_are_counted_by_the_calendar_and_hours_by_the_clock() -> None:
    nights = local(*(datetime(2026, 3, day) for day in range(27, 32)))
    assert find_step([nights]) == DAILY and np.diff(nights.moments).tolist().count(23 * 3600) == 1
    assert DAILY.numbers(nights) is not None
    assert shown(DAILY.after(nights, [4, 5])) == ["2026-03-31T00:00:00", "2026-04-01T00:00:00"]
    # At 2 o'clock the clock jumps to 3.
    hours = local(*(datetime(2026, 3, 29, hour) for hour in (0, 1, 3, 4)))
    step = TimeStep("seconds", 3600)
    found = step.numbers(hours)
    assert find_step([hours]) == step and found is not None and found.tolist() == [0, 1, 2, 3]


def test_the_last_day_of_a_month_stays_the_last() -> None:
    ends = at("2026-01-31", "2026-02-28", "2026-03-31")
    assert shown(TimeStep("months", 1).after(ends, [3, 4, 13])) == [
        "2026-04-30T00:00:00", "2026-05-31T00:00:00", "2027-02-28T00:00:00",
    ]  # fmt: skip
    late = at("2026-01-30", "2026-02-28", "2026-03-30")
    assert shown(TimeStep("months", 1).after(late, [3, 4])) == ["2026-04-30T00:00:00", "2026-05-30T00:00:00"]


def test_weekends_without_stamps_are_no_gaps() -> None:
    work = days(*(day for day in range(4, 40) if np.is_busday(np.datetime64(day, "D"))))
    step = TimeStep("weekdays", 1)
    assert find_step([work]) == step and step.season == 5
    found = step.numbers(work)
    assert found is not None and found.tolist() == list(range(len(work)))
    assert step.numbers(days(2, 3)) is None
    # Day 1 of 1970 was a Friday, day 4 a Monday.
    assert step.after(days(1), [1]).tolist() == [4 * DAY]


def test_there_is_no_step_without_two_times() -> None:
    assert find_step([]) is None and find_step([days(3), days(4, 4)]) is None


@pytest.mark.parametrize(
    "stamps, values, status, laid",
    [
        ((0, 1, 2), (1, 5, 2), "ok", [1, 5, 2]),
        ((0, 1, 3, 4), (1, 5, 9, 2), "gaps filled", [1, 5, 7, 9, 2]),
        ((0, 1, 2, 3), (1, np.nan, 2, np.inf), "gaps", []),
        ((0, 1, 2, 3, 4), (1, np.nan, 2, 3, np.inf), "gaps filled", [1, 1.5, 2, 3]),
        ((0, 1, 9), (1, 5, 2), "gaps", []),
        ((0, 1, 1, 2), (1, 5, 5, 2), "duplicate stamps", []),
        ((0, 1, 2), (4, 4, 4), "constant", [4, 4, 4]),
        ((0, 1), (np.nan, np.nan), "empty", []),
    ],
)
def test_a_series_is_laid_out_or_says_why_not(
    stamps: tuple[int, ...], values: tuple[float, ...], status: str, laid: list[float]
) -> None:
    found = lay_out(Reading("{}", days(*stamps), np.array(values, float)), DAILY)
    assert found.status == status and found.values.tolist() == laid


def test_stamps_between_two_steps_are_irregular() -> None:
    stamps = Stamps(np.array([0.0, 1.5, 3]) * DAY, np.array([0.0, 1.5, 3]) * DAY)
    assert lay_out(Reading("{}", stamps, np.arange(3.0)), DAILY).status == "irregular"


def series(*values: float) -> Series:
    return Series("{}", days(*range(len(values))), np.array(values, float), "ok")


def test_no_window_that_trains_sees_what_chooses_or_reports() -> None:
    jobs = windows.share_out([series(*range(20))], WindowShape(4, 2, 1))
    # The last fifth of the series is for reporting, the fifth before it for choosing.
    assert jobs.trains.followed.max() == 11
    assert (jobs.chooses.followed.min(), jobs.chooses.followed.max()) == (12, 15)
    assert (jobs.reports.followed.min(), jobs.reports.followed.max()) == (16, 19)
    assert jobs.trains.known[0].tolist() == [0, 1, 2, 3] and jobs.trains.followed[0].tolist() == [4, 5]
    assert jobs.scales.tolist() == [1]


def test_a_series_that_is_too_short_gives_no_window() -> None:
    shape = WindowShape(4, 2, 1)
    assert shape.least == 10
    jobs = windows.share_out([series(*range(9)), series(*range(10))], shape)
    assert [len(rows) for rows in (jobs.trains, jobs.chooses, jobs.reports)] == [1, 1, 1]
    assert jobs.trains.series.tolist() == [1] and np.isnan(jobs.scales[0])


def test_where_seasons_are_all_alike_steps_are_the_unit_of_errors() -> None:
    jobs = windows.share_out([series(*[1, 2, 4] * 8), series(*[5] * 24)], WindowShape(4, 2, 3))
    # From 1 to 2, to 4 and back; the last value that trains is a 1.
    assert jobs.scales[0] == pytest.approx(2, abs=0.2) and np.isnan(jobs.scales[1])


def test_a_window_has_its_own_scale() -> None:
    rows = windows.cut([series(2, 4, 6, 8, 10, 7)], [[4]], WindowShape(4, 2, 1))
    assert rows.scales.tolist() == [[2]] and rows.inputs.tolist() == [[-3, -2, -1, 0]]
    assert rows.targets.tolist() == [[1, -0.5]]
    assert rows.in_unit(rows.targets).tolist() == [[10, 7]]
    flat = windows.cut([series(3, 3, 3)], [[3]], WindowShape(3, 1, 1))
    assert flat.inputs.tolist() == [[0, 0, 0]] and flat.scales.tolist() == [[3]]


def test_what_is_known_ahead_goes_on_after_the_last_value() -> None:
    values = np.array([np.nan, 1, 2, 3, np.nan, np.nan])
    reading = Reading("{}", days(*range(6)), values, np.array([[9.0, 0, np.nan, 1, 1, np.nan]]))
    found = lay_out(reading, DAILY)
    # The first row has no value; a line stands for what is missing between.
    assert found.values.tolist() == [1, 2, 3]
    assert np.array_equal(found.ahead, [[0, 0.5, 1, 1, np.nan]], equal_nan=True)
    rows = windows.cut([found], [[2, 3]], WindowShape(2, 2, 1))
    assert np.array_equal(rows.ahead[:, :, 0], [[1, 1], [1, np.nan]], equal_nan=True)
    planned = lay_out(Reading("{}", days(0, 1, 2), np.array([1, 2, np.nan]), np.array([[5.0, 6, 7]])), DAILY)
    far = windows.cut([planned], [[2]], WindowShape(2, 3, 1)).ahead[0, :, 0]
    assert np.array_equal(far, [7, np.nan, np.nan], equal_nan=True)
    (scale,) = inputs.choose_inputs(DAILY, [found], rows, ahead=["promo"], static=[], words=[]).ahead
    assert (scale.center, scale.scale) == (1, 1)
    made = InputMaker(DAILY, [ColumnScale("promo", 0.5, 0.25)]).make([found], rows)
    assert made["ahead"].tolist() == [[2, 2], [2, 0]]


def test_no_line_leads_to_what_is_known_much_later() -> None:
    """A column known ahead has values of much later steps; the steps between stay without a value."""
    values = np.array([1, 2, 3, np.nan, np.nan])
    found = lay_out(Reading("{}", days(0, 1, 2, 6, 7), values, np.array([[0.0, 1, 0, 1, 1]])), DAILY)
    assert np.array_equal(found.ahead, [[0, 1, 0, *[np.nan] * 3, 1, 1]], equal_nan=True)
    maker = InputMaker(DAILY, [ColumnScale("promo", 0.5, 0.25)])
    assert not maker.knows(found, 1)


def test_what_never_changes_is_said_once_for_a_series() -> None:
    stamps, values = days(*range(6)), np.arange(6.0)
    rows = [([[1.0, 0, 1, 0, 1, 0], [3.0] * 6], "north"), ([[0.0, 1, 0, 1, 0, 1], [np.nan] * 6], None)]
    laid = [
        lay_out(Reading(str(number), stamps, values, np.array(columns), (word,)), DAILY)
        for number, (columns, word) in enumerate(rows)
    ]
    ahead, static = inputs.split_columns(laid, ["promo", "size"])
    assert (ahead, static) == (["promo"], ["size"])
    arranged = inputs.arrange(laid, ["promo", "size"], ["size", "promo"])
    assert arranged[0].ahead[:, 0].tolist() == [3, 1]
    cut = windows.cut(laid, [[4], [4]], WindowShape(3, 2, 1))
    maker = inputs.choose_inputs(DAILY, laid, cut, ahead=ahead, static=static, words=["region"])
    assert maker.static == [StaticColumn("size", (), 3, 1), StaticColumn("region", ("north",), 0, 1)]
    assert (maker.numbers, maker.words, maker.calendar) == (["promo", "size"], ["region"], ["weekday"])
    made = maker.make(laid, cut)
    assert made["static"].tolist() == [[0, 1], [0, 0]]
    # Day 4 of 1970 was a Monday.
    assert made["calendar"].tolist() == [[1, 0, 0, 0, 0, 0, 0]] * 2
    still = maker.make_still(laid, 3, 2)
    assert {name: one.tolist() for name, one in still.items()} == {
        "x": [[0, 0, 0]], "ahead": [[0, 0]], "static": [[0, 0.5]], "calendar": [[1 / 7] * 7],
    }  # fmt: skip
    # What stands at each number of the inputs belongs to a value of the window or to a column.
    added = {"x": np.array([1, 2, 3.0]), "ahead": np.array([4, 5.0]), "static": np.array([6, 7.0])}
    window = windows.cut(laid[:1], [[4]], WindowShape(3, 2, 1))
    named = StepParts("day", "sold", maker).name(
        laid[0], window, {**added, "calendar": np.arange(7.0)}, 1, "Tuesday"
    )
    assert list(named) == [
        ("sold[-3]", "1", 1), ("sold[-2]", "2", 2), ("sold[-1]", "3", 3), ("promo", "0", 9),
        ("size", "3", 6), ("region", "north", 7), ("day", "Tuesday", 21),
    ]  # fmt: skip
    # Nobody needs to know ahead what never changes.
    assert [maker.knows(laid[0], steps) for steps in (0, 1)] == [True, False]


def test_the_calendar_has_what_tells_steps_apart() -> None:
    def chosen(step: TimeStep, last: float) -> list[str]:
        stamps = Stamps(np.array([0, last]) * DAY, np.array([0, last]) * DAY)
        return inputs.choose_calendar(step, [Series("{}", stamps, np.zeros(2), "ok")])

    assert chosen(DAILY, 100) == ["weekday"] and chosen(DAILY, 800) == ["weekday", "year"]
    assert chosen(TimeStep("days", 7), 800) == ["year"] and chosen(TimeStep("months", 1), 300) == []
    assert chosen(TimeStep("seconds", 3600), 5) == ["hour", "weekday"]
    assert chosen(TimeStep("weekdays", 1), 30) == ["weekday"] and chosen(TimeStep("numbers", 1), 900) == []


def test_the_calendar_goes_by_the_clock_on_the_wall() -> None:
    # From one o'clock the clock jumps to three, so that four follows.
    hours = local(*(datetime(2026, 3, 29, hour) for hour in (0, 1, 3)))
    walls = TimeStep("seconds", 3600).walls_after(hours, np.array([1, 2, 3]))
    assert shown(walls) == ["2026-03-29T01:00:00", "2026-03-29T03:00:00", "2026-03-29T04:00:00"]


def test_time_may_be_a_whole_number() -> None:
    stamps = Stamps(np.array([10.0, 12, 14, 18]), np.array([10.0, 12, 14, 18]))
    step = find_step([stamps], numbers=True)
    assert (
        step is not None
        and step == TimeStep("numbers", 2)
        and step.season == 1
        and str(step) == "2 units"
        and not step.by_wall
    )
    found = step.numbers(stamps)
    assert found is not None and found.tolist() == [0, 1, 2, 4]
    assert step.after(stamps, [5]).tolist() == [20]


def test_baselines_by_hand() -> None:
    rows = windows.cut([series(0, 1, 2, 5, 3, 4, 6)], [[7]], WindowShape(4, 5, 3))
    assert baselines.answer_seasonal(rows, 5, 3).tolist() == [[3, 4, 6, 3, 4]]
    long = windows.cut([series(0, 1, 2, 5, 3, 4, 6)], [[7]], WindowShape(7, 4, 3))
    assert baselines.answer_seasonal_mean(long, 4, 3).tolist() == [[2, 3, 5.5, 2]]
    assert baselines.answer_naive(rows, 5, 3).tolist() == [[6, 6, 6, 6, 6]]
    # The series goes from 0 to 6 in six steps, so the drift is 1 per step.
    assert baselines.answer_drift(rows, 5, 3).tolist() == [[7, 8, 9, 10, 11]]


@pytest.mark.parametrize("season", [1, 4, 5])
@pytest.mark.parametrize("multiplies", [True, False])
def test_theta_is_the_mean_of_two_lines(season: int, multiplies: bool) -> None:
    """The expected values are the mean of the linear trend and a smoothed line that bends twice as much."""
    rng, length = np.random.default_rng(7), 4 * season + 13
    times = np.arange(length)
    shape = np.resize([1.4, 0.7, 1.1, 0.8, 1.0], season) if season > 1 else np.ones(1)
    shape = shape / shape.mean()
    plain = 40 + 0.8 * times + rng.normal(size=length)
    values = plain * shape[times % season] if multiplies else plain + 20 * (shape[times % season] - 1) - 100
    rows = windows.cut([series(*values)], [[length]], WindowShape(length, 6, season))
    (found,) = baselines.BASELINES["theta"](rows, 6, season)
    coming = length + np.arange(6)
    if season == 1:
        slope, start = np.polyfit(times, values, 1)
        straight = start + slope * times
        bent = 2 * values - straight

        def smoothed(weight: float, line: np.ndarray) -> tuple[float, float]:
            level, missed = line[0], 0.0
            for value in line[1:]:
                missed += (value - level) ** 2
                level += weight * (value - level)
            return level, missed

        best = min(np.linspace(0.05, 0.95, 19), key=lambda weight: smoothed(weight, values)[1])
        wanted = (start + slope * coming + smoothed(best, bent)[0]) / 2
        # The two forms differ by where smoothing begins, which is long ago.
        assert found == pytest.approx(wanted, abs=0.1)
    else:
        ahead = 40 + 0.8 * coming
        wanted = (
            ahead * shape[coming % season] if multiplies else ahead + 20 * (shape[coming % season] - 1) - 100
        )
        assert np.abs(found - wanted).max() < 5 and np.corrcoef(found, wanted)[0, 1] > 0.97


def test_theta_of_two_values_by_hand() -> None:
    """All smoothing weights have the same error, so the smallest, 0.05, is taken; the trend is 10 a step."""
    rows = windows.cut([series(0, 10)], [[2]], WindowShape(2, 2, 1))
    (found,) = baselines.BASELINES["theta"](rows, 2, 1)
    long_ago = (1 - 0.95**2) / 0.05
    assert found == pytest.approx([0.5 + 5 * long_ago, 0.5 + 5 * (1 + long_ago)])


@pytest.mark.parametrize("multiplies", [True, False])
def test_smoothing_goes_on_with_level_trend_and_season(multiplies: bool) -> None:
    """Smoothing continues a series with level, trend and season, better than the seasonal naive forecast."""
    rng, length, season = np.random.default_rng(3), 60, 4
    times = np.arange(length + 6)
    shape = np.array([1.3, 0.8, 1.1, 0.8])[times % season]
    plain = 40 + 1.5 * times
    truth = plain * shape if multiplies else plain + 30 * (shape - 1) - 300
    values = truth[:length] + rng.normal(size=length)
    rows = windows.cut([series(*values)], [[length]], WindowShape(length, 6, season))
    (found,) = baselines.BASELINES["smoothing"](rows, 6, season)
    assert found == pytest.approx(truth[length:], rel=0.08)
    (naive,) = baselines.answer_seasonal(rows, 6, season)
    assert np.abs(found - truth[length:]).mean() < 0.6 * np.abs(naive - truth[length:]).mean()


def test_smoothing_without_a_season_is_that_of_holt() -> None:
    rng = np.random.default_rng(4)
    values = np.cumsum(rng.normal(size=40)) - 50
    rows = windows.cut([series(*values)], [[40]], WindowShape(40, 3, 1))
    (found,) = baselines.BASELINES["smoothing"](rows, 3, 1)

    def smoothed(alpha: float, beta: float, phi: float) -> tuple[float, list[float]]:
        level, trend, missed = values[0], (values[3] - values[0]) / 3 if phi else 0.0, 0.0
        for step, value in enumerate(values):
            ahead = level + phi * trend
            missed += (value - ahead) ** 2 if step >= 3 else 0
            level, before = ahead + alpha * (value - ahead), phi * trend
            trend = before + alpha * beta * (value - ahead)
        return missed, [level + trend * sum(phi**i for i in range(1, h + 1)) for h in (1, 2, 3)]

    tried = [
        smoothed(alpha, beta, phi)
        for alpha in (0.05, 0.15, 0.3, 0.5, 0.75)
        for beta, phi in ((0.0, 0.0), (0.1, 0.9), (0.1, 0.98), (0.3, 0.9))
    ]
    assert found == pytest.approx(min(tried)[1])
    # A window of zeros and one of two steps have answers too.
    for flat in ([0.0] * 8, [3.0, 5.0]):
        short = windows.cut([series(*flat)], [[len(flat)]], WindowShape(len(flat), 3, 1))
        assert np.isfinite(baselines.BASELINES["smoothing"](short, 3, 1)).all()


def test_baselines_look_back_by_whole_windows() -> None:
    one, other = series(*range(20)), series(*range(100, 109))
    rows = windows.cut([one, other], [[5, 12, 17], [4, 9]], WindowShape(4, 1, 1))
    found = {
        place: longer.known[number].tolist()
        for places, longer in windows.look_back(rows, [one, other], WindowShape(4, 1, 1))
        for number, place in enumerate(places.tolist())
    }
    assert found == {
        0: [*range(1, 5)], 1: [*range(12)], 2: [*range(1, 17)], 3: [*range(100, 104)], 4: [*range(101, 109)],
    }  # fmt: skip


def test_mase_is_in_units_of_the_seasonal_naive_error() -> None:
    rows = windows.cut([series(0, 2, 4, 6, 10)], [[3]], WindowShape(3, 2, 1))
    answers = np.array([[7.0, 9.0]])
    assert backtest.find_errors(rows, answers, np.array([2.0])).tolist() == [0.5]
    score = backtest.measure(rows, answers, np.array([2.0]))
    assert (score.mase, score.mae) == (0.5, 1)
    assert np.isnan(backtest.find_errors(rows, answers, np.array([0.0]))).all()


def test_intervals_hold_as_many_new_values_as_they_say() -> None:
    random = np.random.default_rng(3)
    spread = np.array([1.0, 2.0, 4.0])
    for known in (60, 2000):
        errors = random.normal(size=(known, 3)) * spread
        radii = backtest.find_radii(errors)
        new = random.normal(size=(20_000, 3)) * spread
        for level in (0.5, 0.9):
            reach = radii[backtest.LEVELS.index(level)]
            assert backtest.find_coverage(new, reach) == pytest.approx(level, abs=0.05)
            assert np.all(np.diff(reach) > 0)
    # Windows that overlap count for fewer, so intervals are wider.
    errors = random.normal(size=(300, 1))
    few, all_apart = (backtest.find_radii(errors, apart)[40, 0] for apart in (10, 300))
    assert few > all_apart and np.mean(np.abs(errors) <= few) == pytest.approx(0.99, abs=0.01)
    rows = windows.cut([series(*range(9)), series(*range(9))], [[3, 4, 5, 6], [3]], WindowShape(3, 2, 1))
    assert backtest.count_apart(rows) == 3
    # Of nine errors, the rank that counts the tenth value is the ninth.
    only = backtest.find_radii(np.arange(1.0, 10)[:, None])
    assert only[backtest.LEVELS.index(0.9)].tolist() == [pytest.approx(9)]


def test_a_net_answers_only_if_it_is_better_by_more_than_chance() -> None:
    random, by_series = np.random.default_rng(5), np.repeat(np.arange(40), 5)
    plain = random.uniform(0.8, 1.2, 200)
    others = {"seasonal naive": (plain, plain), "drift": (plain + 0.3, plain + 0.3)}

    def chosen(chooses: np.ndarray, reports: np.ndarray) -> str:
        return backtest.choose_answer({"net": (chooses, reports)}, others, by_series)

    assert chosen(plain - 0.2, plain - 0.2 + random.normal(0, 0.1, 200)) == "net"
    assert chosen(plain + 0.01, plain - 0.2) == "seasonal naive"
    assert chosen(plain - 0.2, plain + 0.2) == "seasonal naive"
    # The net is a little better on average, but not by more than chance.
    noise = random.normal(0, 1, 200)
    assert chosen(plain - 0.2, plain - (noise - noise.mean()) - 0.01) == "seasonal naive"
    assert backtest.choose_answer({}, others, by_series) == "seasonal naive"


def forecast() -> Forecast:
    return Forecast(
        source="public.sales", time="day", value="sold", series=["shop"], zone="UTC",
        shape=WindowShape(14, 2, 7), answer="drift", mst_key=None, baselines=["drift"],
        radii=np.full((len(backtest.LEVELS), 2), 0.5),
        inputs=InputMaker(
            DAILY, [ColumnScale("promo", 0, 1)], [StaticColumn("region", ("a",), 0, 1)], ["weekday"]
        ),
        columns=["promo", "region"], options={"seed": 2}, seconds=60,
    )  # fmt: skip


def test_a_document_is_read_as_it_was_written() -> None:
    made = forecast()
    found = read_forecast(json.dumps(made.as_document()), "f")
    assert found.as_document() == made.as_document()


@pytest.mark.parametrize(
    "key, value",
    [
        ("version", 2), ("source", None), ("series", "shop"), ("series", [1]), ("window", 0),
        ("window", "14"), ("season", 15),
        ("horizon", 10**9), ("answer", None), ("mst_key", "1"), ("radii", [[1, 2]]),
        ("radii", [[-1, 2]] * len(backtest.LEVELS)), ("step", {"unit": "days", "every": 0}), ("step", 7),
        ("ahead", None), ("ahead", [{"column": "promo", "center": 0, "scale": 0}]),
        ("static", [{"column": "region", "center": 0, "scale": 1}]), ("calendar", ["moon"]),
        ("baselines", ["oracle"]), ("baselines", []), ("baselines", "drift"), ("columns", [1]),
        ("options", None), ("seconds", 0), ("seconds", "60"),
        ("static", [{"column": "region", "center": 0, "scale": 1, "words": [1]}]), ("static", ["region"]),
        ("step", {"unit": "days", "every": 1.5}), ("step", {"unit": "centuries", "every": 1}),
    ],
)  # fmt: skip
def test_a_damaged_document_is_refused(key: str, value: object) -> None:
    with pytest.raises(CerebroError) as caught:
        read_forecast(json.dumps({**forecast().as_document(), key: value}), "f")
    assert caught.value.sqlstate == "XX001"
    for text in (None, "[]", "{", "7"):
        with pytest.raises(CerebroError, match="version"):
            read_forecast(text, "f")


@pytest.mark.parametrize("name", ["nlinear", "dlinear", "nhits"])
def test_nets_of_windows_need_a_window_and_a_quantity(name: str) -> None:
    rows = NetRows([[28]], [NetOutput("y", [14], is_classes=False)], None)
    ((title, _),) = points.nets(name, None, rows)
    assert title.startswith(name)
    with pytest.raises(CerebroError, match="one dimension"):
        points.nets(name, None, NetRows([[28, 2]], rows.outputs, None))
    with pytest.raises(CerebroError, match="is of classes"):
        points.nets(name, None, NetRows([[28]], [NetOutput("y", [14], is_classes=True)], None))


def test_steps_below_a_millisecond_are_refused() -> None:
    moments = 1.7e9 + np.arange(50) * 1e-5
    with pytest.raises(CerebroError, match="less than a millisecond"):
        find_step([Stamps(moments, moments)])
