"""SQL statements that have a segment's process carry out a command, and that store the command's results.

Results are stored on the segment where they were made, so that the transaction ends on that segment alone.
Each statement takes JSON as $1. Keys and numbers by which rows are distributed are part of the statement's
text: with a parameter in their place, the statement might go to every segment.
"""

from __future__ import annotations

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.names import quote
from cerebro_plpy.store.runs.measurements import Measured
from cerebro_plpy.store.writing import cast_value, columns


def work(key: int) -> str:
    """Return the statement that passes the order in $1, as JSON, to the process on the segment of a
    distribution key; the process carries the order out."""
    return f"SELECT cerebro._work($1) AS found FROM cerebro._segment_key WHERE dist_key = {int(key)}"


def work_directly(key: int) -> str:
    """Return a statement like that of `work()`, to be sent by the driving session to a segment session.

    The segment session, on the coordinator, first shows other sessions what it is doing, and then passes the
    order on to the segment. The parameters are written as %s, the form of the driving session's psycopg2.
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
    """Return the column `found` of the only row that a statement returns; `about` is the statement's JSON
    parameter."""
    return db.query(statement, ["text"], [about])[0]["found"]
