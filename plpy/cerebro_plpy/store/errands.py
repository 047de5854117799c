"""SQL of what comes again and again in a run on Greenplum: visits, evaluations, and their sums.

What a command leaves stands on the segment where it was made, so that its transaction ends there alone. A
statement is given JSON, as $1. Keys and numbers by which rows are distributed are written out: a statement
with a parameter in their place may go to every segment.
"""

from __future__ import annotations

from collections.abc import Iterable

from cerebro_plpy.database import Database

# A state of so many parts goes to a process in pieces: no value may have more than a gigabyte.
MOST_PARTS = 128
NOTIFY = "SELECT pg_catalog.pg_notify('cerebro_run', $1)"

_STATE = {"run_id": "bigint", "mst_key": "integer", "step": "integer"}
_VISIT = _STATE | {
    "epoch": "integer", "segment": "integer", "rows": "bigint", "loss": "float8", "logs": "jsonb",
    "state_bytes": "bigint", "read_seconds": "float8", "train_seconds": "float8", "write_seconds": "float8",
    "pid": "integer",
}  # fmt: skip
_EVALUATION = {
    "run_id": "bigint", "mst_key": "integer", "epoch": "integer", "dataset": "text", "segment": "integer",
    "seconds": "float8",
}  # fmt: skip
_MEASURED = {
    "epoch": "integer", "dataset": "text", "position": "integer", "metric": "text", "value": "float8",
    "higher_is_better": "boolean",
}  # fmt: skip


def _given(name: str, kind: str) -> str:
    return f"($1::json->>'{name}')::{kind}"


def _values(columns: dict[str, str]) -> str:
    return ", ".join(_given(name, kind) for name, kind in columns.items())


def _names(columns: dict[str, str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _matches(columns: Iterable[str]) -> str:
    return " AND ".join(f"{name} = {_given(name, _VISIT[name])}" for name in columns)


def state(key: int, step: int) -> str:
    """The parts of a state that was made beside a key's rows, but for the last ones of a very large one."""
    return (
        f"SELECT part, data FROM cerebro._state WHERE place = {int(key)}"
        f" AND {_matches(['run_id', 'mst_key'])} AND step = {int(step)} AND part < {MOST_PARTS}"
    )


# What every segment measured, in the order of the datasets' names.
EVALUATIONS = (
    "SELECT dataset || lpad(segment::text, 9, '0') AS part, data FROM cerebro._evaluation"
    f" WHERE {_matches(['run_id', 'mst_key', 'epoch'])}"
)


def work(key: int, parts: str | None) -> str:
    """Have the process beside a key's rows do what it is told; parts come to it from where they lie.

    Grouped by the key, so that the parts move, and not the work.
    """
    if parts is None:
        return (
            f"SELECT cerebro._work($1, NULL) AS found FROM cerebro._segment_key WHERE dist_key = {int(key)}"
        )
    return (
        "SELECT cerebro._work($1, array_agg(s.data ORDER BY s.part)) AS found FROM cerebro._segment_key AS k"
        f" LEFT JOIN ({parts}) AS s ON true WHERE k.dist_key = {int(key)} GROUP BY k.dist_key"
    )


def write_state(key: int) -> str:
    """Write down the state that the process has left; nothing moves."""
    return (
        f"INSERT INTO cerebro._state (place, {_names(_STATE)}, part, data)"
        f" SELECT k.dist_key, {_values(_STATE)}, n.part, cerebro._left_part(n.part)"
        " FROM cerebro._segment_key AS k,"
        f" pg_catalog.generate_series(0, {_given('parts', 'integer')} - 1) AS n (part)"
        f" WHERE k.dist_key = {int(key)} ON CONFLICT DO NOTHING"
    )


def write_visit(key: int) -> str:
    return (
        f"INSERT INTO cerebro._visit (place, {_names(_VISIT)}, started_at, ended_at)"
        f" VALUES ({int(key)}, {_values(_VISIT)}, pg_catalog.to_timestamp({_given('started_at', 'float8')}),"
        " pg_catalog.clock_timestamp()) ON CONFLICT DO NOTHING"
    )


def write_evaluations(key: int) -> str:
    """Write down what a segment has measured, on all datasets at once; nothing moves."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in {**_EVALUATION, "data": "text"}.items())
    return (
        f"INSERT INTO cerebro._evaluation (place, {_names(_EVALUATION)}, data)"
        f" SELECT k.dist_key, {_names(_EVALUATION)}, pg_catalog.decode(e.data, 'base64')"
        f" FROM cerebro._segment_key AS k, pg_catalog.json_to_recordset($1::json) AS e ({columns})"
        f" WHERE k.dist_key = {int(key)} ON CONFLICT DO NOTHING"
    )


def write_metric(run_id: int, mst_key: int) -> str:
    return (
        f"INSERT INTO cerebro._metric (run_id, mst_key, {_names(_MEASURED)})"
        f" VALUES ({int(run_id)}, {int(mst_key)}, {_values(_MEASURED)}) ON CONFLICT DO NOTHING"
    )


# Whether a role may read all of these tables whole: the coordinator knows that by itself.
MAY_READ = (
    "SELECT pg_catalog.bool_and(pg_catalog.has_table_privilege($1::json->>'role', t, 'SELECT'))::text"
    " AS found FROM pg_catalog.json_array_elements_text($1::json->'tables') AS t"
)
# States of configs that nobody needs any more; newer ones than those to be kept may have come since this was
# asked for, and stay. No join: nothing moves.
DROP_STATES = (
    f"DELETE FROM cerebro._state WHERE {_matches(['run_id'])}"
    " AND step < ($1::jsonb->'newest'->>mst_key::text)::integer"
    " AND NOT ($1::jsonb->'keep'->mst_key::text) @> pg_catalog.to_jsonb(step)"
)


def find(db: Database, statement: str, given: str) -> str:
    """What a statement that gives one text gives."""
    return db.query(statement, ["text"], [given])[0]["found"]


def write(db: Database, statement: str, given: str) -> None:
    db.query(statement, ["text"], [given])
