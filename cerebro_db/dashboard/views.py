"""What the page shows, read from the public views in the viewer's own role."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from ..database import Database
from ..link import EngineLink, pinned
from ..run import Run

MOST_RUNS = 50
MOST_COMPARED = 8
# What the report is drawn with: the extra `plot`.
DRAWING = ("pandas", "matplotlib")
# A run may have been called anything, of any length.
MOST_NAME, MOST_DESCRIPTION = 200, 10_000
# A row's own time is a little before its commit; what is sent twice the page knows by its key.
OVERLAP_SECONDS = 30.0

_RUN_COLUMNS = f"""
    run_id, owner, owner = current_user AS mine, status, left(name, {MOST_NAME}) AS name,
    left(description, {MOST_DESCRIPTION}) AS description, source_table, validation_table,
    model_table, configs, failed_configs, epochs, segments, visits_done, visits_total, seed, topology,
    extract(epoch FROM started_at)::float8 AS started_at, extract(epoch FROM ended_at)::float8 AS ended_at,
    seconds, detail, search"""

WHO = """
SELECT current_database()::text AS database, current_user::text AS role,
    current_setting('server_version') AS server,
    (SELECT extversion FROM pg_extension WHERE extname = 'cerebro') AS version
"""
RUNS = f"SELECT {_RUN_COLUMNS} FROM cerebro.runs ORDER BY run_id DESC LIMIT {MOST_RUNS}"
RUN = f"""
SELECT {_RUN_COLUMNS}, extract(epoch FROM clock_timestamp())::float8 AS now
FROM cerebro.runs WHERE run_id = %(run)s
"""
CONFIGS = """
SELECT p.mst_key, p.model_id, p.status, p.epoch, p.epochs, p.visits_done, p.visits_total, p.segment,
    p.loss AS visit_loss, p.seconds_left, p.failure, p.compile_params, p.fit_params, p.cloned_from, p.asked,
    p.net,
    b.rank, b.dataset, b.metric, b.value, b.loss, b.epoch AS measured_epoch, b.best_value, b.best_epoch,
    b.newest_value, b.newest_epoch
FROM cerebro.progress AS p
LEFT JOIN (SELECT * FROM cerebro.leaderboard WHERE run_id = %(run)s) AS b USING (mst_key)
WHERE p.run_id = %(run)s
ORDER BY b.rank NULLS LAST, p.mst_key
"""
METRICS = """
SELECT mst_key, epoch, dataset, metric, value, higher_is_better, extract(epoch FROM at)::float8 AS at
FROM cerebro.metrics
WHERE run_id = %(run)s AND at > to_timestamp(%(since)s)
ORDER BY epoch, mst_key
"""
VISITS = """
SELECT mst_key, step, epoch, segment, loss, extract(epoch FROM started_at)::float8 AS started_at,
    extract(epoch FROM ended_at)::float8 AS ended_at, pid, cpu_seconds, memory_bytes
FROM cerebro.visits
WHERE run_id = %(run)s AND ended_at > to_timestamp(%(since)s)
ORDER BY ended_at
"""
DECISIONS = """
SELECT number, mst_key, epoch, decision, epochs, reason, decided_by, extract(epoch FROM at)::float8 AS at
FROM cerebro.decisions
WHERE run_id = %(run)s AND number > %(since)s
ORDER BY number
"""

BEST = """
SELECT b.mst_key, b.dataset, b.metric, b.value, b.loss, b.epoch, b.compile_params, b.fit_params,
    p.net, p.model_id
FROM cerebro.leaderboard AS b JOIN cerebro.progress AS p USING (run_id, mst_key)
WHERE b.run_id = %(run)s AND b.value IS NOT NULL AND b.failure IS NULL ORDER BY b.rank, b.mst_key LIMIT 1
"""
CURVES = """
SELECT epoch, dataset, metric, value FROM cerebro.metrics
WHERE run_id = %(run)s AND mst_key = %(config)s ORDER BY dataset, metric, epoch
"""

PLAN = 'SELECT "QUERY PLAN" AS line FROM cerebro.explain_run(%(run)s)'

Row = dict[str, Any]
Table = dict[str, list[Any]]


def overview(engine: Engine) -> Row:
    """Who looks at which database, and the newest runs."""
    with engine.connect() as connection:
        draws = all(map(find_spec, DRAWING))
        return {"who": {**rows(connection, WHO)[0], "draws": draws}, "runs": rows(connection, RUNS)}


def run(engine: Engine, run_id: int, since: Mapping[str, float]) -> Row | None:
    """One run as it stands, with what came to be since the page last asked; None where there is no such run.

    `since` is what the answer before gave as `next`.
    """
    with engine.connect() as connection:
        found = rows(connection, RUN, run=run_id)
        if not found:
            return None
        metrics = table(connection, METRICS, run=run_id, since=_overlapping(since, "metrics"))
        visits = table(connection, VISITS, run=run_id, since=_overlapping(since, "visits"))
        decisions = table(connection, DECISIONS, run=run_id, since=int(since.get("decisions", -1)))
        return {
            "run": found[0],
            "configs": rows(connection, CONFIGS, run=run_id),
            "metrics": metrics,
            "visits": visits,
            "decisions": decisions,
            "next": {
                "metrics": _last(metrics, "at", since.get("metrics", 0.0)),
                "visits": _last(visits, "ended_at", since.get("visits", 0.0)),
                "decisions": _last(decisions, "number", since.get("decisions", -1)),
            },
        }


def compare(engine: Engine, run_ids: Sequence[int]) -> Row:
    """Some runs side by side, each with its best config and what that has reached."""
    with engine.connect() as connection:
        return {"runs": [one for run_id in run_ids for one in _beside(connection, run_id)]}


def _beside(connection: Connection, run_id: int) -> list[Row]:
    found = []
    for run in rows(connection, RUN, run=run_id):
        (best,) = rows(connection, BEST, run=run_id) or [None]
        key = None if best is None else best["mst_key"]
        curves = [] if key is None else rows(connection, CURVES, run=run_id, config=key)
        found.append({"run": run, "best": best, "curves": curves})
    return found


def report(engine: Engine, run_id: int) -> bytes | None:
    """The run as one HTML file."""
    with engine.connect() as connection:
        if not rows(connection, RUN, run=run_id):
            return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.html"
        Run(Database(EngineLink(engine, owned=False)), run_id).report(path)
        return path.read_bytes()


def plan(engine: Engine, run_id: int) -> Row | None:
    """What was to be expected of a run, beside what it took."""
    with engine.connect() as connection:
        if not rows(connection, RUN, run=run_id):
            return None
        return {"lines": [row["line"] for row in rows(connection, PLAN, run=run_id)]}


def rows(connection: Connection, query: str, **values: object) -> list[Row]:
    """Every row as a dict that JSON can carry."""
    found = connection.exec_driver_sql(pinned(query), values)
    return [{name: _plain(value) for name, value in row.items()} for row in found.mappings()]


def table(connection: Connection, query: str, **values: object) -> Table:
    """Many rows in few bytes: the names of the columns once."""
    found = connection.exec_driver_sql(pinned(query), values)
    return {"columns": list(found.keys()), "rows": [[_plain(value) for value in row] for row in found]}


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity; the page shows both as nothing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _overlapping(since: Mapping[str, float], name: str) -> float:
    return max(0.0, since.get(name, 0.0) - OVERLAP_SECONDS)


def _last(found: Table, column: str, before: float) -> float:
    place = found["columns"].index(column)
    values: Sequence[float] = [row[place] for row in found["rows"]]
    return max([before, *values])
