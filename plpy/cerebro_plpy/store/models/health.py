"""SQL on the checks of registered models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store import session
from cerebro_plpy.store.writing import tell_of_model

CHECKED = "checked"


def keep(
    db: Database,
    version_id: int,
    *,
    source: str,
    rows: int,
    verdict: str,
    lines: Sequence[Mapping[str, Any]],
) -> None:
    """Store a check of a version. No rights are checked: the calling function must have found that the user
    may manage the model."""
    _write(db, [version_id, source, rows, verdict, json.dumps(lines), session.current_user(db)])


@as_owner
def _write(db: Database, values: Sequence[Any]) -> None:
    rows = db.query(
        "INSERT INTO cerebro._model_check (name, version, source_table, rows, verdict, findings, role)"
        " SELECT v.name, v.version, $2, $3, $4, $5::jsonb, $6 FROM cerebro._model_version AS v"
        " WHERE v.version_id = $1 RETURNING check_id",
        ["bigint", "text", "bigint", "text", "text", "text"],
        values,
    )
    for row in rows:
        tell_of_model(db, CHECKED, check_id=row["check_id"])
