"""SQL on the groups of runs; with the rights of the extension's owner."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.store.packed.groups import GroupRow
from cerebro_plpy.store.runs.runs import inserts
from cerebro_plpy.store.writing import Writing


def creation(run_id: int, groups: Sequence[GroupRow]) -> list[Writing]:
    """Return the writings that store the groups of a run."""
    rows = [
        {"group_id": g.number, "key": g.key, "rows": g.rows, "segments": g.segments, "classes": g.classes}
        for g in groups
    ]
    return inserts("cerebro._group", run_id, rows)


@as_owner
def read(db: Database, run_id: int) -> dict[int, GroupRow]:
    """Return the groups of a run, by number."""
    rows = db.query(
        "SELECT group_id AS number, key, rows, segments, classes FROM cerebro._group"
        " WHERE run_id = $1 ORDER BY group_id",
        ["bigint"],
        [run_id],
    )
    return {row["number"]: GroupRow(**row) for row in rows}


@as_owner
def units(db: Database, run_id: int) -> list[Row]:
    """Return, for each unit of a run (a config on a group or on all rows), its key, its config and its
    group's key, which is empty if the unit has all rows."""
    return db.query(
        "SELECT c.mst_key, COALESCE(c.config_key, c.mst_key) AS config, COALESCE(g.key, '') AS key"
        " FROM cerebro._config AS c LEFT JOIN cerebro._group AS g USING (run_id, group_id)"
        " WHERE c.run_id = $1",
        ["bigint"],
        [run_id],
    )
