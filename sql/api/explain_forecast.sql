CREATE OR REPLACE FUNCTION cerebro.explain_forecast(
    name text,
    which jsonb DEFAULT NULL,
    horizon integer DEFAULT NULL,
    top integer DEFAULT 5
) RETURNS TABLE (
    series jsonb,
    forecast_time timestamptz,
    value double precision,
    baseline double precision,
    column_name text,
    column_value text,
    contribution double precision,
    approximation_error double precision,
    forecast_number bigint
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "explain_forecast", name, which, horizon, top)
$$;
COMMENT ON FUNCTION cerebro.explain_forecast(text, jsonb, integer, integer) IS
'Says how much each of the newest values of a series and each column adds to what the net of a forecast foretells, for each step up to horizon. It returns a row for each of the parts that add most: as many as top says, or all if top is NULL. column_name is a column that is known ahead or never changes, the column of the time for the calendar, or the value so many steps before the forecast, such as sold[-7]. baseline is what the net forecasts for a series that has stood still at its last value, with columns and calendar as on average. The contributions of all parts add up to value - baseline, except for the share of it that approximation_error says. which names the series by some or all of their columns, such as {"shop": "shop 1"}; without it, all are explained. Series that no net answers, and those that have not moved, are left out. name is that of cerebro.train_forecast, or a registered forecast: name, name@alias or name@version. It reads the source with the rights of the caller.';
