CREATE OR REPLACE FUNCTION cerebro.train_forecast(
    source_table varchar,
    "time" text,
    value text,
    series text[] DEFAULT NULL,
    horizon integer DEFAULT 1,
    name text DEFAULT NULL,
    budget interval DEFAULT '1 minute',
    columns text[] DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    answer text,
    mst_key integer,
    parameters text,
    mase double precision,
    mae double precision,
    coverage double precision,
    best boolean
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "train_forecast", source_table, time, value, series, horizon, name, budget, columns, options)
$$;
COMMENT ON FUNCTION cerebro.train_forecast(varchar, text, text, text[], integer, text, interval, text[], jsonb) IS
'Trains nets that forecast a number of a table over time. The columns series name a series together; without them, all rows are one series. It finds the step from stamp to stamp (seconds, days, weekdays or months), cuts all series into windows, each in its own scale, and trains one net for all series with ASHA within the budget. Time may also be a whole number. The nets also see columns: numbers and booleans that are known ahead, which rows without a value have for the steps to come, and what never changes within a series, such as the text region; and they see the hour, the weekday and the time of the year where these tell steps apart. The newest horizons of each series are backtests: they train nothing. It returns the nets, also their medians with the baselines that go best with each, and beside them the baselines: seasonal naive, seasonal mean, naive, drift, theta and smoothing, some of them together, each with its mean absolute scaled error (mase), mean absolute error (mae) and the share of values that its intervals of 90 % held (coverage). best is what cerebro.forecast answers with: a net only if it is better than each of the others by more than chance. It creates the tables name, name_info, name_summary, name_packed, name_packed_validation, name_nets, name_best, name_windows and name_forecast. Options: window and season (in steps), nets (starting points or lines of layers), configs, epochs, backend, seed, segments.';
