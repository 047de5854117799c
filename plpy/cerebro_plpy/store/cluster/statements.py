"""SQL that has a segment's process work, and that writes down what it leaves.

What a command leaves stands on the segment where it was made, so that its transaction ends there alone. A
statement is given JSON, as $1. Keys and numbers by which rows are distributed are written out: a statement
with a parameter in their place may go to every segment.
"""

from __future__ import annotations

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.measurements import Measured
from cerebro_plpy.store.names import quote
from cerebro_plpy.store.writing import columns, given


def work(key: int) -> str:
    """Have the process beside a key's rows do what it is told."""
    return f"SELECT cerebro._work($1) AS found FROM cerebro._segment_key WHERE dist_key = {int(key)}"


def work_directly(key: int) -> str:
    """The same in a session that has nothing else to do about it: the coordinator passes it on, as it is.

    What the session is at is shown first, on the coordinator. Sent to another session, so its parameters are
    written as the driver wants them.
    """
    return (
        "SELECT cerebro._work(%s) AS found FROM cerebro._segment_key"
        f" WHERE dist_key = {int(key)} AND (SELECT cerebro._show(%s))"
    )


def write_metric(run_id: int, mst_key: int) -> str:
    rest = {n: kind for n, kind in columns(Measured).items() if n not in ("run_id", "mst_key")}
    values = ", ".join(given(name, kind.given) for name, kind in rest.items())
    return (
        f"INSERT INTO cerebro._metric (run_id, mst_key, {', '.join(map(quote, rest))})"
        f" VALUES ({int(run_id)}, {int(mst_key)}, {values}) ON CONFLICT DO NOTHING"
    )


@as_owner
def find(db: Database, statement: str, about: str) -> str:
    """What a statement that gives one text gives."""
    return db.query(statement, ["text"], [about])[0]["found"]
