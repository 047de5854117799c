CREATE OR REPLACE FUNCTION cerebro.forecast(
    name text,
    horizon integer DEFAULT NULL,
    level double precision DEFAULT 0.9,
    history integer DEFAULT 0
) RETURNS TABLE (
    series jsonb,
    forecast_time timestamptz,
    value double precision,
    lower double precision,
    upper double precision,
    status text,
    forecast_number bigint
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "forecast", name, horizon, level, history)
$$;
COMMENT ON FUNCTION cerebro.forecast(text, integer, double precision, integer) IS
'Forecasts each series of a table from its newest rows, with what cerebro.train_forecast has found best. It reads the source with the rights of the caller; rows that have arrived since need no training. Each series has a row for each step, up to the horizon that was trained (the default): series names it by its columns, and lower and upper hold the value with the probability level, from 0.5 to 0.99. name is that of cerebro.train_forecast, or a registered forecast: name, name@alias or name@version. Where time is a whole number, forecast_number has it, and forecast_time is NULL. With history, so many of the newest values stand before the forecasts, with the status known. status is otherwise ok, gaps filled, short or constant; a series whose status is gaps, irregular, duplicate stamps, columns unknown or empty has one row without a forecast. Short series get their last season or value, without bounds.';
