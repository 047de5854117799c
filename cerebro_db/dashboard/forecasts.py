"""Shows forecasts on the dashboard: the past and the future of a series, and an explanation."""

from __future__ import annotations

from sqlalchemy import Engine

from cerebro_db.dashboard import views
from cerebro_db.dashboard.predicting import reading
from cerebro_db.dashboard.views import Row

MOST_SERIES, HISTORY, MOST_PARTS = 500, 60, 12
# Times are local times.
_FORECAST = f"""
WITH f AS MATERIALIZED (
    SELECT row_number() OVER () AS n, x.*
    FROM cerebro.forecast(%(name)s, level => 0.9, history => {HISTORY}) AS x
), s AS (
    SELECT series, min(n) AS n, max(status) FILTER (WHERE status <> 'known') AS status
    FROM f GROUP BY series ORDER BY 2 LIMIT {MOST_SERIES}
), chosen AS (
    SELECT coalesce(%(series)s::jsonb, (SELECT series FROM s ORDER BY n LIMIT 1)) AS series
)
SELECT
    (SELECT json_agg(json_build_array(s.series::text, s.status) ORDER BY s.n) FROM s) AS series,
    (SELECT count(DISTINCT f.series) FROM f) AS total,
    (SELECT c.series::text FROM chosen AS c) AS chosen,
    (SELECT json_agg(json_build_object(
        'at', coalesce(f.forecast_number::float8,
            extract(epoch FROM f.forecast_time AT TIME ZONE current_setting('TimeZone'))::float8),
        'value', f.value, 'lower', f.lower, 'upper', f.upper, 'known', f.status = 'known') ORDER BY f.n)
    FROM f JOIN chosen AS c USING (series) WHERE f.value IS NOT NULL) AS points,
    (SELECT bool_or(f.forecast_number IS NOT NULL) FROM f) AS numbered
"""
_REASONS = (
    "SELECT left(column_name, 200) AS column_name, left(column_value, 200) AS column_value, value, baseline,"
    f" contribution FROM cerebro.explain_forecast(%(name)s, %(series)s::jsonb, 1, {MOST_PARTS})"
)


def forecast(engine: Engine, name: str, series: str | None) -> Row:
    """Return the names of all series of a forecast, and the values of one series, by default the first."""
    with reading(engine) as connection:
        return views.rows(connection, _FORECAST, name=name, series=series)[0]


def explain(engine: Engine, name: str, series: str) -> Row:
    """Return how much each earlier value and each column adds to the next value of a series."""
    with reading(engine) as connection:
        return {"parts": views.rows(connection, _REASONS, name=name, series=series)}
