"""Forecasts of tables with hostile names, and in sessions of different time zones."""

from __future__ import annotations

import json

import psycopg2
import pytest

from trial import Trial


def test_times_without_a_zone_are_what_the_clock_shows(trial: Trial) -> None:
    """Forecast days and hours are those of the source table, whatever the session's time zone."""
    quick = json.dumps({"nets": ["nlinear"], "configs": 1, "epochs": 1})
    trial.sql(
        "CREATE TABLE hours AS SELECT s, '2026-03-01'::timestamp + h * interval '1 hour' AS at,"
        " s + h % 24 AS v FROM generate_series(1, 3) AS s, generate_series(0, 599) AS h"
    )
    trial.sql("CREATE TABLE days AS SELECT s, '2026-03-01'::date + d AS day, s + d % 7 AS v"
              " FROM generate_series(1, 3) AS s, generate_series(0, 99) AS d")  # fmt: skip
    first = "SELECT DISTINCT min(forecast_time)::{} FROM cerebro.forecast('{}_forecast') GROUP BY series"
    origins = "SELECT max(origin)::timestamp = max(h.at) - 30 * interval '1 hour'"
    trial.sql("SET timezone = 'America/New_York'")
    try:
        for table, time in (("hours", "at"), ("days", "day")):
            call = "SELECT cerebro.train_forecast(%s, %s, 'v', ARRAY['s'], 6, options => %s)"
            trial.sql(call, table, time, quick)
        assert trial.value(f"{origins} FROM hours_forecast_windows, hours AS h")
        for zone in ("America/New_York", "UTC", "Asia/Tokyo"):
            trial.sql("SELECT set_config('timezone', %s, FALSE)", zone)
            assert trial.sql(first.format("timestamp::text", "hours")) == [("2026-03-26 00:00:00",)]
            assert trial.sql(first.format("date::text", "days")) == [("2026-06-09",)]
    finally:
        trial.sql("RESET timezone")


def test_names_may_be_hostile(trial: Trial) -> None:
    trial.sql(
        """CREATE SCHEMA "a ""b"; CREATE TABLE "a ""b"."t'; DROP" AS
        SELECT (s || '"'';') AS "k""'", '2026-01-01'::timestamp + d * interval '1 day' AS "at;",
               (d % 7 + s) AS "v$1 {}" FROM generate_series(1, 4) AS s, generate_series(0, 79) AS d"""
    )
    trial.sql(
        "SELECT cerebro.train_forecast(%s, 'at;', 'v$1 {}', ARRAY[%s], 3, %s, options => %s)",
        """"a ""b"."t'; DROP\"""", "k\"'", """"a ""b"."f\"""",
        json.dumps({"configs": 1, "epochs": 1, "nets": "nlinear"}),
    )  # fmt: skip
    found = trial.sql("""SELECT series->>'k"''', value FROM cerebro.forecast('"a ""b"."f"', 3)""")
    assert len(found) == 12 and {key for key, _ in found} == {f"{s}\"';" for s in range(1, 5)}
    # The weeks repeat exactly, so the forecast continues the last week.
    assert [value for _, value in found][:3] == [4, 5, 6]


def test_an_option_that_is_too_large_is_called_by_its_name(trial: Trial) -> None:
    trial.sql("CREATE TABLE steady AS SELECT d AS t, d % 7 AS v FROM generate_series(1, 99) AS d")
    for option in ("epochs", "configs"):
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=f"option {option} is 20000"):
            trial.sql("SELECT cerebro.train_forecast('steady', 't', 'v', horizon => 3, options => %s)",
                      json.dumps({option: 20_000}))  # fmt: skip


def test_a_series_that_has_come_to_rest_is_forecast(trial: Trial) -> None:
    """The seasonal naive forecast has no error in the last backtests, so there is no share of its error."""
    trial.sql(
        "CREATE TABLE rests AS SELECT date '2024-01-01' + i AS day,"
        " CASE WHEN i < 89 THEN 10 + 3 * sin(i) + i % 5 ELSE 0 END AS y FROM generate_series(0, 99) AS i"
    )
    options = '{"nets": "nlinear", "configs": 1, "epochs": 1}'
    trial.notices()
    trial.sql("SELECT cerebro.train_forecast('rests', 'day', 'y', name => 'rest', options => %s)", options)
    assert "naive answers: MASE 0 in 4 backtests" in trial.notices()
