"""SQL that has a segment's process work, and that writes down what it leaves.

The results of a command stand on the segment where they were made, so that its transaction ends there alone.
A statement is given JSON, as $1. Keys and numbers by which rows are distributed are written out: a statement
with a parameter in their place may go to every segment.
"""

from __future__ import annotations

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.names import quote
from cerebro_plpy.store.runs.measurements import Measured
from cerebro_plpy.store.writing import cast_value, columns


def work(key: int) -> str:
    """Return the statement that has the process beside a key's rows do what $1 tells it."""
    return f"SELECT cerebro._work($1) AS found FROM cerebro._segment_key WHERE dist_key = {int(key)}"


def work_directly(key: int) -> str:
    """Return this statement for a session that only passes it on from the coordinator, as it is.

    It first shows, on the coordinator, what the session is at. It is sent to another session, so its
    parameters are written as the driver wants them.
    """
    return (
        "SELECT cerebro._work(%s) AS found FROM cerebro._segment_key"
        f" WHERE dist_key = {int(key)} AND (SELECT cerebro._show(%s))"
    )


def write_metric(run_id: int, mst_key: int) -> str:
    rest = {n: kind for n, kind in columns(Measured).items() if n not in ("run_id", "mst_key")}
    values = ", ".join(cast_value(name, kind.given) for name, kind in rest.items())
    return (
        f"INSERT INTO cerebro._metric (run_id, mst_key, {', '.join(map(quote, rest))})"
        f" VALUES ({int(run_id)}, {int(mst_key)}, {values}) ON CONFLICT DO NOTHING"
    )


@as_owner
def find(db: Database, statement: str, about: str) -> str:
    """Return the text that a statement gives."""
    return db.query(statement, ["text"], [about])[0]["found"]
