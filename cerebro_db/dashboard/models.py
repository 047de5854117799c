"""Shows registered models on the dashboard: versions, checks, and how much each column is worth."""

from __future__ import annotations

import base64
from typing import Any

from sqlalchemy import Engine

from cerebro_db.dashboard import views
from cerebro_db.dashboard.predicting import reading, still
from cerebro_db.dashboard.views import Row
from cerebro_db.judged import explanation

MOST_VERSIONS, MOST_CHECKS, MOST_COLUMNS = 50, 200, 12
# Options for a model that the page explains: enough for bars, in seconds.
_OPTIONS = '{"repeats": 3, "rows": 2000}'

_VERSIONS = f"""
SELECT version, aliases, left(comment, 200) AS comment, metrics, registered_by,
    extract(epoch FROM at)::float8 AS at
FROM cerebro.model_versions WHERE name = %(name)s ORDER BY version DESC LIMIT {MOST_VERSIONS}
"""
_CHECKS = f"""
SELECT version, extract(epoch FROM at)::float8 AS at, verdict, left(source_table, 200) AS source_table, rows,
    (SELECT json_agg(f) FROM jsonb_array_elements(findings) AS f WHERE f ->> 'verdict' <> 'ok') AS findings
FROM cerebro.model_health WHERE name = %(name)s ORDER BY check_id DESC LIMIT {MOST_CHECKS}
"""
_IMPORTANCE = (
    "SELECT left(column_name, 200) AS column_name, importance, low, high"
    f" FROM cerebro.importance(%(model)s, %(table)s, NULL, '{_OPTIONS}') LIMIT {MOST_COLUMNS}"
)


def model(engine: Engine, name: str) -> Row | None:
    """Return the versions and the checks of a registered model; None if no model has this name."""
    with engine.connect() as connection:
        versions = views.rows(connection, _VERSIONS, name=name)
        if not versions:
            return None
        return {"name": name, "versions": versions, "checks": views.rows(connection, _CHECKS, name=name)}


def importance(engine: Engine, reference: str, table: str) -> Row:
    """Return how much each column of a table is worth to a model, the greatest first."""
    with reading(engine) as connection:
        source = still(connection, table)
        return {"columns": views.rows(connection, _IMPORTANCE, model=reference, table=source)}


def explain(engine: Engine, reference: str, table: str, id_column: str, row: str) -> Row:
    """Return how much each column of a row adds to a model's prediction, the greatest first."""
    with reading(engine) as connection:
        query = explanation(still(connection, table), id_column)
        found = connection.exec_driver_sql(query, ([row], reference, MOST_COLUMNS)).mappings()
        return {"columns": [{name: _shown(value) for name, value in one.items()} for one in found]}


def _shown(value: Any) -> Any:
    """Return a value in a form that JSON can hold: bytes as base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview) else views.plain(value)
