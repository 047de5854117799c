"""Reads what the dashboard shows from the public views, in the role of the viewer."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from cerebro_db.database import Database
from cerebro_db.link import EngineLink, pinned
from cerebro_db.run import GOING, Run

MOST_RUNS = 50
MOST_COMPARED = 8
# What the report is drawn with: the extra `plot`.
DRAWING = ("pandas", "matplotlib")
# The name and the description of a run may have any length.
MOST_NAME, MOST_DESCRIPTION = 200, 10_000
# The time in a row is a little before its commit. The page recognizes rows that are sent twice by their keys.
OVERLAP_SECONDS = 30.0

_RUN_COLUMNS = f"""
    run_id, owner, owner = current_user AS mine, status, left(name, {MOST_NAME}) AS name,
    left(description, {MOST_DESCRIPTION}) AS description, source_table, validation_table,
    model_table, configs, failed_configs, epochs, segments, visits_done, visits_total, seed, topology,
    extract(epoch FROM started_at)::float8 AS started_at, extract(epoch FROM ended_at)::float8 AS ended_at,
    seconds, detail, search, groups, folds"""

WHO = """
SELECT current_database()::text AS database, current_user::text AS role,
    current_setting('server_version') AS server,
    (SELECT extversion FROM pg_extension WHERE extname = 'cerebro') AS version
"""
MOST_MODELS = 100
# Each with the verdict of its last check.
MODELS = f"""
SELECT m.name, m.versions, m.default_version,
    (SELECT h.verdict FROM cerebro.model_health AS h WHERE h.name = m.name
    ORDER BY h.check_id DESC LIMIT 1) AS verdict
FROM cerebro.models AS m ORDER BY m.name LIMIT {MOST_MODELS}
"""
# Tables beside models that describe a forecast, and registered models that are one.
FORECASTS = f"""
SELECT quote_ident(n.nspname) || '.' || quote_ident(left(c.relname, -9)) AS name
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND right(c.relname, 9) = '_forecast' AND length(c.relname) > 9
    AND left(n.nspname, 3) <> 'pg_'
    AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'document'
        AND a.atttypid = 'jsonb'::regtype)
    AND has_table_privilege(c.oid, 'SELECT')
UNION ALL
SELECT v.name || '@' || v.version FROM cerebro.model_versions AS v
JOIN cerebro.models AS m ON m.name = v.name AND m.default_version = v.version
WHERE jsonb_exists(v.lineage, 'forecast')
ORDER BY 1 LIMIT {MOST_MODELS}
"""
RUNS = f"SELECT {_RUN_COLUMNS} FROM cerebro.runs ORDER BY run_id DESC LIMIT {MOST_RUNS}"
RUN = f"""
SELECT {_RUN_COLUMNS}, extract(epoch FROM clock_timestamp())::float8 AS now
FROM cerebro.runs WHERE run_id = %(run)s
"""
_PROGRESS = """p.mst_key, p.config_key, p.model_id, p.status, p.epoch, p.epochs, p.visits_done,
    p.visits_total, p.segment, p.loss AS visit_loss, p.seconds_left, p.failure, p.compile_params,
    p.fit_params, p.cloned_from, p.asked, p.net"""
_BOARD = """b.rank, b.dataset, b.metric, b.value, b.loss, b.epoch AS measured_epoch, b.best_value,
    b.best_epoch, b.newest_value, b.newest_epoch, b.deviation, b.fold_values"""
CONFIGS = f"""
SELECT {_PROGRESS}, {_BOARD}
FROM cerebro.progress AS p
LEFT JOIN (SELECT * FROM cerebro.leaderboard WHERE run_id = %(run)s) AS b ON b.unit_key = p.mst_key
WHERE p.run_id = %(run)s
ORDER BY b.rank NULLS LAST, p.mst_key
"""
# The configs of one group; those of all rows where it has no key. One after the other, since the second
# looks for a few configs among very many.
GROUP_BOARD = f"""
SELECT b.unit_key, {_BOARD} FROM cerebro.leaderboard AS b
WHERE b.run_id = %(run)s AND b.group_key IS NOT DISTINCT FROM %(group)s ORDER BY b.rank, b.unit_key
"""
GROUP_PROGRESS = f"""
SELECT {_PROGRESS} FROM cerebro.progress AS p
WHERE p.run_id = %(run)s AND p.mst_key = ANY (%(units)s::integer[])
"""
# A cross-validated config is one row, with the mean of its folds where all of them have been measured.
FOLDED_CONFIGS = f"""
SELECT b.mst_key, NULL::integer AS config_key, b.model_id, p.status, p.epoch, p.epochs, p.visits_done,
    p.visits_total, p.segment, p.visit_loss, p.seconds_left, b.failure, b.compile_params, b.fit_params,
    NULL::integer AS cloned_from, NULL::text AS asked, p.net, {_BOARD}
FROM cerebro.leaderboard AS b
JOIN (
    SELECT x.config_key,
        (array_agg(x.status ORDER BY array_position(ARRAY['training', 'evaluating', 'failed', 'waiting',
            'paused', 'interrupted', 'stopped', 'deleted'], x.status)))[1] AS status,
        min(x.epoch) AS epoch, max(x.epochs) AS epochs, sum(x.visits_done)::bigint AS visits_done,
        sum(x.visits_total)::bigint AS visits_total, min(x.segment) AS segment, avg(x.loss) AS visit_loss,
        sum(x.seconds_left) AS seconds_left, min(x.net) AS net
    FROM cerebro.progress AS x WHERE x.run_id = %(run)s GROUP BY x.config_key
) AS p ON p.config_key = b.mst_key
WHERE b.run_id = %(run)s
ORDER BY b.rank NULLS LAST, b.mst_key
"""
_METRIC_ROWS = """
SELECT mst_key, epoch, dataset, metric, value, higher_is_better, extract(epoch FROM at)::float8 AS at
FROM cerebro.metrics
WHERE run_id = %(run)s AND at > to_timestamp(%(since)s)"""
METRICS = f"{_METRIC_ROWS} ORDER BY epoch, mst_key"
UNIT_METRICS = f"{_METRIC_ROWS} AND mst_key = ANY (%(units)s::integer[]) ORDER BY epoch, mst_key"
FOLDED_METRICS = """
SELECT p.config_key AS mst_key, m.epoch, m.dataset, m.metric, avg(m.value) AS value,
    bool_and(m.higher_is_better) AS higher_is_better, extract(epoch FROM max(m.at))::float8 AS at
FROM cerebro.metrics AS m JOIN cerebro.progress AS p USING (run_id, mst_key)
WHERE m.run_id = %(run)s AND p.fold IS NOT NULL
GROUP BY p.config_key, m.epoch, m.dataset, m.metric
HAVING max(m.at) > to_timestamp(%(since)s) AND count(*) = %(folds)s
ORDER BY m.epoch, p.config_key
"""
_VISIT_ROWS = """
SELECT mst_key, step, epoch, segment, loss, extract(epoch FROM started_at)::float8 AS started_at,
    extract(epoch FROM ended_at)::float8 AS ended_at, pid, cpu_seconds, memory_bytes
FROM cerebro.visits
WHERE run_id = %(run)s AND ended_at > to_timestamp(%(since)s)"""
VISITS = f"{_VISIT_ROWS} ORDER BY ended_at"
UNIT_VISITS = f"{_VISIT_ROWS} AND mst_key = ANY (%(units)s::integer[]) ORDER BY ended_at"
# `unit` tells the fold.
FOLDED_VISITS = """
SELECT p.config_key AS mst_key, v.mst_key AS unit, v.step, v.epoch, v.segment, v.loss,
    extract(epoch FROM v.started_at)::float8 AS started_at,
    extract(epoch FROM v.ended_at)::float8 AS ended_at,
    v.pid, v.cpu_seconds, v.memory_bytes
FROM cerebro.visits AS v JOIN cerebro.progress AS p USING (run_id, mst_key)
WHERE v.run_id = %(run)s AND v.ended_at > to_timestamp(%(since)s)
ORDER BY v.ended_at
"""
DECISIONS = """
SELECT number, mst_key, epoch, decision, epochs, reason, decided_by, extract(epoch FROM at)::float8 AS at
FROM cerebro.decisions
WHERE run_id = %(run)s AND number > %(since)s
ORDER BY number
"""

BEST = """
SELECT b.mst_key, b.dataset, b.metric, b.value, b.loss, b.epoch, b.compile_params, b.fit_params, b.model_id,
    (SELECT min(p.net) FROM cerebro.progress AS p
        WHERE p.run_id = %(run)s AND coalesce(p.config_key, p.mst_key) = b.mst_key) AS net
FROM cerebro.leaderboard AS b
WHERE b.run_id = %(run)s AND b.group_key IS NULL AND b.value IS NOT NULL AND b.failure IS NULL
ORDER BY b.rank, b.mst_key LIMIT 1
"""
FOLDED_CURVES = """
SELECT m.epoch, m.dataset, m.metric, avg(m.value) AS value
FROM cerebro.metrics AS m JOIN cerebro.progress AS p USING (run_id, mst_key)
WHERE m.run_id = %(run)s AND p.config_key = %(config)s AND p.fold IS NOT NULL
GROUP BY m.epoch, m.dataset, m.metric ORDER BY m.dataset, m.metric, m.epoch
"""
CURVES = """
SELECT epoch, dataset, metric, value FROM cerebro.metrics
WHERE run_id = %(run)s AND mst_key = %(config)s ORDER BY dataset, metric, epoch
"""

COSTS = """
SELECT core_seconds, gpu_seconds, moved_bytes, stored_bytes, price, watt_hours
FROM cerebro.costs WHERE run_id = %(run)s
"""
PLAN = 'SELECT "QUERY PLAN" AS line FROM cerebro.explain_run(%(run)s)'

Row = dict[str, Any]
Table = dict[str, list[Any]]


def overview(engine: Engine) -> Row:
    """Return the role and the database, the newest runs, and the registered models and forecasts."""
    with engine.connect() as connection:
        draws = all(map(find_spec, DRAWING))
        return {
            "who": {**rows(connection, WHO)[0], "draws": draws},
            "runs": rows(connection, RUNS),
            "models": rows(connection, MODELS),
            "forecasts": [row["name"] for row in rows(connection, FORECASTS)],
        }


def run(engine: Engine, run_id: int, since: Mapping[str, float], group: str | None = None) -> Row | None:
    """Return a run with its new metrics, visits and decisions; None if there is no such run.

    `since` is the value of `next` in the response before. A run of groups shows only the configs of `group`.
    """
    with engine.connect() as connection:
        found = rows(connection, RUN, run=run_id)
        if not found:
            return None
        which: Row = {"run": run_id, "folds": found[0]["folds"]}
        measured, visited = METRICS, VISITS
        if found[0]["groups"]:
            configs = [] if group is None else _of_group(connection, run_id, group or None)
            which["units"] = [config["mst_key"] for config in configs]
            measured, visited = UNIT_METRICS, UNIT_VISITS
        elif found[0]["folds"]:
            configs = rows(connection, FOLDED_CONFIGS, **which)
            measured, visited = FOLDED_METRICS, FOLDED_VISITS
        else:
            configs = rows(connection, CONFIGS, **which)
        metrics = table(connection, measured, since=_overlapping(since, "metrics"), **which)
        visits = table(connection, visited, since=_overlapping(since, "visits"), **which)
        decisions = table(connection, DECISIONS, run=run_id, since=int(since.get("decisions", -1)))
        return {
            "run": found[0],
            "configs": configs,
            "metrics": metrics,
            "visits": visits,
            "decisions": decisions,
            # The costs are final only when the run is over; before, the page asks too often for them.
            "costs": [] if found[0]["status"] in GOING else rows(connection, COSTS, run=run_id),
            "next": {
                "metrics": _last(metrics, "at", since.get("metrics", 0.0)),
                "visits": _last(visits, "ended_at", since.get("visits", 0.0)),
                "decisions": _last(decisions, "number", since.get("decisions", -1)),
            },
        }


def _of_group(connection: Connection, run_id: int, group: str | None) -> list[Row]:
    ranked = rows(connection, GROUP_BOARD, run=run_id, group=group)
    units = [row["unit_key"] for row in ranked]
    standing = {row["mst_key"]: row for row in rows(connection, GROUP_PROGRESS, run=run_id, units=units)}
    return [{**standing[row["unit_key"]], **row} for row in ranked if row["unit_key"] in standing]


def compare(engine: Engine, run_ids: Sequence[int]) -> Row:
    """Return some runs side by side, each with its best config and the metrics of that config by epoch."""
    with engine.connect() as connection:
        return {"runs": [one for run_id in run_ids for one in _beside(connection, run_id)]}


def _beside(connection: Connection, run_id: int) -> list[Row]:
    found = []
    for run in rows(connection, RUN, run=run_id):
        (best,) = rows(connection, BEST, run=run_id) or [None]
        key = None if best is None else best["mst_key"]
        query = FOLDED_CURVES if run["folds"] else CURVES
        curves = [] if key is None else rows(connection, query, run=run_id, config=key)
        found.append({"run": run, "best": best, "curves": curves})
    return found


def report(engine: Engine, run_id: int) -> bytes | None:
    """Return the report of a run, as an HTML file; None if there is no such run."""
    with engine.connect() as connection:
        if not rows(connection, RUN, run=run_id):
            return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.html"
        Run(Database(EngineLink(engine, owned=False)), run_id).report(path)
        return path.read_bytes()


def plan(engine: Engine, run_id: int) -> Row | None:
    """Return the text of a run's plan with its actual times; None if there is no such run."""
    with engine.connect() as connection:
        if not rows(connection, RUN, run=run_id):
            return None
        return {"lines": [row["line"] for row in rows(connection, PLAN, run=run_id)]}


def rows(connection: Connection, query: str, **values: object) -> list[Row]:
    """Return the rows of a query, each as a dict of values that JSON can hold."""
    found = connection.exec_driver_sql(pinned(query), values)
    return [{name: plain(value) for name, value in row.items()} for row in found.mappings()]


def table(connection: Connection, query: str, **values: object) -> Table:
    """Return the rows of a query as lists of values, with the names of the columns once."""
    found = connection.exec_driver_sql(pinned(query), values)
    return {"columns": list(found.keys()), "rows": [[plain(value) for value in row] for row in found]}


def plain(value: Any) -> Any:
    """Return the value, but None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _overlapping(since: Mapping[str, float], name: str) -> float:
    return max(0.0, since.get(name, 0.0) - OVERLAP_SECONDS)


def _last(found: Table, column: str, before: float) -> float:
    place = found["columns"].index(column)
    values: Sequence[float] = [row[place] for row in found["rows"]]
    return max([before, *values])
