"""SQL on the groups of runs; with the rights of the extension's owner."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.groups import GroupRow
from cerebro_plpy.store.runs import inserts
from cerebro_plpy.store.writing import Writing


def creation(run_id: int, groups: Sequence[GroupRow]) -> list[Writing]:
    """What writes the groups of a run down."""
    rows = [{"group_id": g.number, "key": g.key, "rows": g.rows, "segments": g.segments} for g in groups]
    return inserts("cerebro._group", run_id, rows)


@as_owner
def read(db: Database, run_id: int) -> dict[int, GroupRow]:
    """The groups of a run, by their numbers."""
    rows = db.query(
        "SELECT group_id AS number, key, rows, segments FROM cerebro._group"
        " WHERE run_id = $1 ORDER BY group_id",
        ["bigint"],
        [run_id],
    )
    return {row["number"]: GroupRow(**row) for row in rows}
