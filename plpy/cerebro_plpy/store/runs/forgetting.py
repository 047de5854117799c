"""SQL that deletes runs, with the rights of the extension's owner."""

from __future__ import annotations

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.runs import drivers

_TABLES = (
    "_failure", "_metric", "_evaluation", "_state", "_frozen", "_visit", "_config", "_weights",
    "_architecture", "_group", "_run_event", "_request", "_decision", "_driver", "_run_function", "_run",
)  # fmt: skip


@as_owner
def delete_older(db: Database, days: int) -> None:
    """Delete the runs that ended more than `days` days ago.

    A run stays while it has a control session, or while an unfinished run begins with its states.
    """
    rows = db.query(
        "SELECT r.run_id FROM cerebro._run AS r WHERE greatest("
        "(SELECT max(e.at) FROM cerebro._run_event AS e WHERE e.run_id = r.run_id),"
        " (SELECT max(v.ended_at) FROM cerebro._visit AS v WHERE v.run_id = r.run_id))"
        " < now() - make_interval(days => $1)",
        ["integer"],
        [days],
    )
    needed = _warm_starts(db)
    for row in rows:
        if row["run_id"] not in needed and drivers.claim(db, row["run_id"]):
            delete(db, row["run_id"])


@as_owner
def find_warm_start(db: Database, run_id: int) -> int | None:
    """Return an unfinished run that begins with the states of the run `run_id`; None if there is none."""
    return _warm_starts(db).get(run_id)


def _warm_starts(db: Database) -> dict[int, int]:
    """Return the runs with whose states an unfinished run begins, each with such a run."""
    rows = db.query(
        "SELECT c.warm_run_id, max(c.run_id) AS run_id FROM cerebro._config AS c"
        " JOIN cerebro._run AS r ON r.run_id = c.run_id AND r.kind <> 'evaluation'"
        " WHERE c.warm_run_id IS NOT NULL AND NOT EXISTS (SELECT FROM cerebro._run_event AS e"
        " WHERE e.run_id = c.run_id AND e.event = 'finished') GROUP BY c.warm_run_id"
    )
    return {row["warm_run_id"]: row["run_id"] for row in rows}


@as_owner
def delete(db: Database, run_id: int) -> None:
    """Delete every row of a run."""
    for table in _TABLES:
        db.query(f"DELETE FROM cerebro.{table} WHERE run_id = $1", ["bigint"], [run_id])
