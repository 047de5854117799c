"""Times of forecasts in sessions of different time zones."""

from __future__ import annotations

import json

from trial import Trial


def test_times_without_a_zone_are_what_the_clock_shows(trial: Trial) -> None:
    """In whatever zone a session is, days of a date are those days, and hours of a timestamp those hours."""
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
