"""SQL of what comes again and again in a run on Greenplum: visits, evaluations, and their sums.

What a command leaves stands on the segment where it was made, so that its transaction ends there alone. A
statement is given JSON, as $1. Keys and numbers by which rows are distributed are written out: a statement
with a parameter in their place may go to every segment.
"""

from __future__ import annotations

from typing import Any

from cerebro_plpy.database import Database

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


def work(key: int) -> str:
    """Have the process beside a key's rows do what it is told."""
    return f"SELECT cerebro._work($1) AS found FROM cerebro._segment_key WHERE dist_key = {int(key)}"


def straight(key: int) -> str:
    """The same in a session that has nothing else to do about it: the coordinator passes it on, as it is.

    What the session is at is shown first, on the coordinator. Sent to another session, so its parameters are
    written as the driver wants them.
    """
    return (
        "SELECT cerebro._work(%s) AS found FROM cerebro._segment_key"
        f" WHERE dist_key = {int(key)} AND (SELECT cerebro._show(%s))"
    )


def write_metric(run_id: int, mst_key: int) -> str:
    return (
        f"INSERT INTO cerebro._metric (run_id, mst_key, {_names(_MEASURED)})"
        f" VALUES ({int(run_id)}, {int(mst_key)}, {_values(_MEASURED)}) ON CONFLICT DO NOTHING"
    )


# States of configs that nobody needs any more; newer ones than those to be kept may have come since this was
# asked for, and stay. No join: nothing moves.
DROP_STATES = (
    f"DELETE FROM cerebro._state WHERE run_id = {_given('run_id', 'bigint')}"
    " AND step < ($1::jsonb->'newest'->>mst_key::text)::integer"
    " AND NOT ($1::jsonb->'keep'->mst_key::text) @> pg_catalog.to_jsonb(step)"
)


# What writes something down: a statement, and what it is given as JSON. On Greenplum it is not always Python
# that runs it (segment/courier.py).
Writing = tuple[str, Any]
TELL = (
    "SELECT pg_catalog.pg_notify('cerebro_run', told)"
    " FROM pg_catalog.json_array_elements_text($1::json) AS told"
)


def find(db: Database, statement: str, given: str) -> str:
    """What a statement that gives one text gives."""
    return db.query(statement, ["text"], [given])[0]["found"]


def write(db: Database, statement: str, given: str) -> None:
    db.query(statement, ["text"], [given])
